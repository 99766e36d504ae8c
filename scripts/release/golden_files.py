"""Sentences, losses and files of the writers of tests/golden/*.npz.

golden_pytorch.py describes the sentences, and says how to create torch_venv.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from torch.nn import functional

from scripts.benchmarks import harness

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "golden"
VOCAB_SIZE = 23
EPSILON = 1e-6  # added to the variance in layer normalization
LENGTHS = ((5, 4), (2, 6), (7, 3), (3, 5), (1, 2))  # (source, target)
# The sentences of each row.
PADDED = ((0,), (1,), (2,), (3,), (4,))
PACKED = ((0, 1), (2, 3, 4))


def run(main, description):
    """Call a writer's main() in float64, or print the --help."""
    harness.argument_parser(description).parse_args()
    torch.set_default_dtype(torch.float64)
    main()


def draw_sentences(random):
    """Return random pairs of lists of ids; EOS is 1."""
    return [
        [[*random.integers(2, VOCAB_SIZE, n - 1), 1] for n in lengths]
        for lengths in LENGTHS
    ]


def lay_out(sentences, rows):
    """Return {feature: [rows, slots] int64}; a row ends in a padding slot."""
    batch = {}
    for side, name in enumerate(("inputs", "targets")):
        texts = [[sentences[i][side] for i in row] for row in rows]
        slots = 1 + max(sum(map(len, row)) for row in texts)
        ids, segments, positions = np.zeros((3, len(rows), slots), np.int64)
        for number, row in enumerate(texts):
            start = 0
            for segment, text in enumerate(row, start=1):
                place = number, slice(start, start + len(text))
                ids[place] = text
                segments[place] = segment
                positions[place] = range(len(text))
                start += len(text)
        batch[name] = ids
        batch[f"{name}_segment"] = segments
        batch[f"{name}_position"] = positions
    return batch


def losses(logits, labels, smoothing):
    """Return the smoothed and the plain mean loss.

    Args:
        logits: [N, V].
        labels: [N].
        smoothing: label smoothing over the other V - 1 ids.
    """
    # torch gives e' / V to every subword, the target included; tensor2tensor
    # e / (V - 1) to every other one. Both are equal if e' = e V / (V - 1).
    vocab_size = logits.shape[-1]
    smoothing = smoothing * vocab_size / (vocab_size - 1)
    return {
        "smoothed": functional.cross_entropy(
            logits, labels, label_smoothing=smoothing
        ),
        "plain": functional.cross_entropy(logits, labels),
    }


def real_outputs(batch, memory, logits, smoothing):
    """Return outputs without padding, and their losses.

    Args:
        batch: {feature: tensor}, of lay_out().
        memory: encoder output [B, L, D].
        logits: [B, T, V].
        smoothing: of losses().
    """
    real = batch["targets_segment"] > 0
    return {
        "encoder_output": memory[batch["inputs_segment"] > 0],
        "logits": logits[real],
        **losses(logits[real], batch["targets"][real], smoothing),
    }


def save(name, settings, arrays):
    """Write pytorch_NAME.npz, with its provenance before the arrays."""
    file = FOLDER / f"pytorch_{name}.npz"
    script = pathlib.Path(sys.argv[0]).stem
    stored = {
        "command": f"python -m scripts.release.{script}",
        "torch": torch.__version__,
        "settings": json.dumps(settings),
        **arrays,
    }
    np.savez_compressed(file, **stored)
    print(f"{file}: {len(stored)} arrays, {file.stat().st_size:,} bytes")
