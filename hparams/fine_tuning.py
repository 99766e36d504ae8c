"""Training of a model that is trained already, such as an imported one."""

import dataclasses

from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.registry import hparams_sets


@hparams_sets.register("fine_tuning", parent="base")
def fine_tuning(parent: TransformerHParams) -> TransformerHParams:
    """A small constant learning rate; the importer sets the model's hparams."""
    return dataclasses.replace(
        parent,
        learning_rate_schedule="constant*linear_warmup",
        # The default of Hugging Face's run_translation.py; here with Adam of
        # section 5.3, and warm-up, since its moments start at zero.
        learning_rate_constant=5e-5,
        learning_rate_warmup_steps=100,
        batch_tokens=4_096,
        max_length=512,  # OPUS-MT's max_position_embeddings
        train_steps=2_000,
        save_checkpoints_steps=200,
    )
