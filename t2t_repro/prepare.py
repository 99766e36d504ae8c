"""The data of a problem: generated where missing, checked where present."""

import functools
import pathlib

from t2t_repro import errors, fields, files, locks
from t2t_repro.data import generate, vocabulary_pair
from t2t_repro.data import manifest as manifests
from t2t_repro.problem import SPLITS, Problem


def data_folder(data_dir, problem: Problem) -> pathlib.Path:
    """Where a problem's data lies: X and X_rev share it."""
    return files.path(data_dir) / problem.data_name


def prepare(
    problem: Problem,
    data_dir,
    raw_dir=None,
    num_workers: int = 1,
    verify: bool = False,
) -> pathlib.Path:
    """Makes a problem's data unless it is there; its folder.

    Where another process is making it, this one waits.

    Args:
        problem: what to make.
        data_dir: downloads/ and a folder for each problem go here.
        raw_dir: folder with the raw files; None: download them.
        num_workers: threads that encode.
        verify: compare every file with its checksum.

    Raises:
        UserError: the data that is there was made with other settings, or is
            damaged.
    """
    folder = data_folder(data_dir, problem)
    if not _made(problem, folder, raw_dir, num_workers):
        _check(manifests.read(folder), problem, folder)
        print(f"The data is there: {folder}.")
        if raw_dir is not None:
            print(f"{raw_dir} is not read again; remove {folder} to do so.")
    if verify:
        manifests.verify(folder)
        print(f"Every file in {folder} is as it was written.")
    return folder


def _made(problem, folder, raw_dir, num_workers):
    """Makes the data unless it is there; whether it did."""
    if manifests.read(folder):  # it may be a folder to read only
        return False
    with locks.locked(folder, wait=True):
        missing = not manifests.read(folder)
        if missing:
            _generate(problem, folder, raw_dir, num_workers)
    return missing


def _generate(problem, folder, raw_dir, num_workers):
    begun = manifests.read_unfinished(folder)
    if begun:
        _check(begun, problem, folder)
    print(f"Generating data in {folder}.")
    downloads = folder.parent / "downloads"
    manifest = generate.generate(
        folder,
        {
            split: functools.partial(
                problem.normalized_pairs, split, raw_dir, downloads
            )
            for split in SPLITS
        },
        generate.Spec(
            problem.vocab_size,
            problem.vocabulary_paths,
            problem.vocabulary_type,
            problem.separate_vocabularies,
            problem.source_vocab_size,
            problem.max_length,
            problem.max_length_ratio,
            problem.split_by_unicode_script,
        ),
        _facts(problem, raw_dir),
        num_workers,
    )
    print(summary(manifest))


def wait_for_data(problem: Problem, data_dir) -> pathlib.Path:
    """The folder of a problem's data, which another worker has just made.

    Raises:
        UserError: it is not seen here, or was made with other settings.
    """
    folder = data_folder(data_dir, problem)
    if not files.wait_until(lambda: manifests.read(folder)):
        raise errors.UserError(
            f"There is no data in {folder}, where the first worker has it. All "
            "workers must see the same --data_dir."
        )
    return prepare(problem, data_dir)


def summary(manifest) -> str:
    """What was read, kept and dropped, a line a split."""
    lines = [
        f"Vocabulary {name}: {vocabulary['size']:,} subwords, "
        f"sha256 {vocabulary['sha256'][:12]}…"
        for name, vocabulary in manifests.vocabulary_files(manifest).items()
    ]
    for split, counts in manifest["splits"].items():
        dropped = ", ".join(
            f"{count:,} {reason.replace('_', ' ')}"
            for reason, count in counts["dropped"].items()
        )
        tokens = counts["tokens"]
        lines.append(
            f"{split}: {counts['kept']:,} of {counts['read']:,} pairs, "
            f"{tokens['inputs']:,} and {tokens['targets']:,} subwords "
            f"(dropped: {dropped})"
        )
    return "\n".join(lines)


def _facts(problem, raw_dir):
    return {
        "problem": problem.registered_name,
        "arguments": problem.arguments,
        "languages": problem.stored_languages,
        "sources": {
            split: problem.sources(split)
            if raw_dir is None
            else [{"raw_dir": str(raw_dir)}]
            for split in SPLITS
        },
    }


def _check(manifest, problem, folder):
    """The manifest must say what the problem says.

    Arguments that came after it have their defaults there.
    """
    wanted = {"problem": problem.registered_name} | problem.arguments
    arguments = manifest.get("arguments")
    found = {"problem": manifest.get("problem")}
    if isinstance(arguments, dict):
        found |= fields.with_defaults(type(problem), arguments)
    if problem.vocabulary_paths:
        given = vocabulary_pair.load(
            problem.vocabulary_type, problem.vocabulary_paths
        )
        for name, vocabulary in given.files.items():
            wanted[f"{name} sha256"] = vocabulary.sha256
        for name, facts in manifests.vocabulary_files(manifest).items():
            found[f"{name} sha256"] = facts["sha256"]
    differences = [
        f"{name} is {found.get(name)!r} there and {value!r} here"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    if differences:
        raise errors.UserError(
            f"The data in {folder} was made with other settings: "
            f"{'; '.join(differences)}. Remove the folder, or name another "
            "--data_dir."
        )
