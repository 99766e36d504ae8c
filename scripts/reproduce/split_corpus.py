"""Division of a corpus without splits into train, validation and test.

    python -m scripts.reproduce.split_corpus --output_dir=tatoeba \\
        --inputs_file=deu-eng.en --targets_file=deu-eng.de

The extension of a file is its language: the output is train.en, train.de,
validation.en, … for the problem parallel_text. Repeated pairs are removed.
Collections such as Tatoeba have several translations of a sentence: none of the
sentences of a split, on either side, is in another one. The division depends on
--seed and on the pairs, not on their order or on the machine.
"""

import hashlib

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import files, storage
from t2t_repro.text import parallel_files

_HELD_OUT = flags.DEFINE_integer(
    "held_out",
    2_000,
    "Pairs of the validation split, and of the test split.",
    lower_bound=1,
)
_SEED = flags.DEFINE_integer("seed", 1, "Seed of the division.")
_FILES = [
    flags.DEFINE_string(f"{side}_file", None, f"File of the {side} (.gz too).")
    for side in ("inputs", "targets")
]
flags.declare_key_flag("output_dir")


def main():
    folder = common_flags.output_dir()
    paths = [files.expand_path(common_flags.required(f.name)) for f in _FILES]
    languages = [
        path.name.removesuffix(".gz").rpartition(".")[2] for path in paths
    ]
    if len(set(languages)) < 2:
        raise errors.UserError(
            "The two files must have different extensions, their languages; "
            f"got {paths[0]} and {paths[1]}."
        )
    pairs = set(parallel_files.read_pairs(*paths))
    splits = divide(pairs, _HELD_OUT.value, _SEED.value)
    folder.mkdir(parents=True, exist_ok=True)
    for name, split in splits.items():
        for side, language in enumerate(languages):
            lines = "".join(f"{pair[side]}\n" for pair in split)
            files.write_text(folder / f"{name}.{language}", lines)
        print(f"{name}: {len(split):,} pairs")
    storage.upload(folder)
    left_out = len(pairs) - sum(map(len, splits.values()))
    print(f"{left_out:,} pairs are left out: a sentence of theirs is held out.")


def divide(pairs: set[tuple[str, str]], held_out: int, seed: int) -> dict:
    """Return {split: pairs}, where no two splits share a sentence.

    Of the `held_out` pairs of validation and of test none share one either.

    Raises:
        UserError: there are too few pairs.
    """

    def digest(pair):
        return hashlib.sha256("\t".join([str(seed), *pair]).encode()).digest()

    ordered = sorted(pairs, key=digest)
    held: list = []
    sources, targets = set(), set()
    for source, target in ordered:
        if len(held) == 2 * held_out:
            break
        if source not in sources and target not in targets:
            held.append((source, target))
            sources.add(source)
            targets.add(target)
    train = [
        (source, target)
        for source, target in ordered
        if source not in sources and target not in targets
    ]
    if not train:
        raise errors.UserError(
            f"{len(pairs):,} different pairs are too few to hold out twice "
            f"{held_out:,}. Lower --held_out."
        )
    return {
        "train": train,
        "validation": held[:held_out],
        "test": held[held_out:],
    }


if __name__ == "__main__":
    command_line.run(main)
