"""Training: loss, optimizer, step, checkpoints, and the loop over them."""
