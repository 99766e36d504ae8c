"""Preparation of a problem's data: generated if missing, otherwise checked."""

import functools
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

from t2t_repro import data_origin, errors, fields
from t2t_repro.data import engines, generate, manifest
from t2t_repro.data.corpus_spec import Spec
from t2t_repro.io import files, json_files, locks, storage
from t2t_repro.problem import Path, Problem
from t2t_repro.text import parallel_files, raw_archive, vocabulary_pair

# Of a manifest, what an archive has, too.
_DESCRIBED = ("problem", "arguments", "languages", "sources", "versions")


def data_folder(
    data_dir: Path, problem: Problem, split: str | None = None
) -> pathlib.Path:
    """Return the folder of a problem's data, which X and X_rev share.

    Args:
        data_dir: parent of the folder; data at a URL is copied first.
        problem: the problem.
        split: the only split of which shards are copied; None: all.
    """

    def choose(names):
        return [
            name
            for name in names
            if name.startswith(split or "") or not name.endswith(".arrow")
        ]

    folder = storage.local_path(data_dir) / problem.data_name
    return storage.download(folder, choose)


def prepare(
    problem: Problem,
    data_dir: Path,
    raw_dir: Path | None = None,
    num_workers: int = 1,
    verify: bool = False,
    engine: str = "local",
) -> pathlib.Path:
    """Generate a problem's data if it is missing.

    If another process is generating it, this one waits.

    Args:
        problem: problem whose data is needed.
        data_dir: parent of downloads/ and of a folder for each problem. At a
            URL only these folders are stored, when they are complete.
        raw_dir: folder of the raw files, or an archive that archive() writes;
            None: download them.
        num_workers: threads that encode, and processes that filter, of the
            local engine.
        verify: whether to compare every file with its checksum.
        engine: name of the engine that filters and encodes; see engines.

    Returns:
        The folder of the data.

    Raises:
        UserError: the existing data has other settings or, if `raw_dir` is
            given, other text; or it is damaged.
    """
    folder = data_folder(data_dir, problem)
    raw_dir = _unpacked(raw_dir, folder)
    made_by = engines.create(engine, engines.ThreadEngine(num_workers))
    if not _generate_if_missing(problem, folder, raw_dir, made_by):
        contents = manifest.require(folder)
        data_origin.check_settings(contents, problem, folder)
        if raw_dir is not None:
            _require_same_text(contents, problem, folder, raw_dir)
        data_origin.note_changes(contents, problem, folder)
        print(f"The data is there: {storage.name_of(folder)}.")
    storage.upload(folder)
    if verify:
        manifest.verify(folder)
        print(f"Every file in {folder} has the checksum of its manifest.")
    return folder


def _generate_if_missing(
    problem: Problem,
    folder: pathlib.Path,
    raw_dir: Path | None,
    engine: engines.Engine,
) -> bool:
    """Generate the data if it is missing; return whether it was missing."""
    if manifest.read(folder):  # without a lock: the folder may be read-only
        return False
    with locks.locked(folder, wait=True):
        missing = not manifest.read(folder)
        if missing:
            _generate(problem, folder, raw_dir, engine)
    return missing


def _generate(
    problem: Problem,
    folder: pathlib.Path,
    raw_dir: Path | None,
    engine: engines.Engine,
) -> None:
    unfinished = manifest.read_unfinished(folder)
    if unfinished:
        data_origin.check_settings(unfinished, problem, folder)
    engine.require_workers()
    print(f"Generating data in {folder}.")
    text = _text_folders(folder, raw_dir)
    contents = generate.generate(
        folder,
        _splits(problem, text),
        Spec(
            vocab_size=problem.vocab_size,
            vocabulary_paths=problem.vocabulary_paths
            or _archived_vocabularies(problem, text[0]),
            vocabulary_type=problem.vocabulary_type,
            separate_vocabularies=problem.separate_vocabularies,
            source_vocab_size=problem.source_vocab_size,
            max_length=problem.max_length,
            max_length_ratio=problem.max_length_ratio,
            split_by_unicode_script=problem.split_by_unicode_script,
            filters=problem.pair_filters,
            tags=problem.source_tags,
            vocabulary_lines=functools.partial(problem.vocabulary_lines, *text)
            if problem.target_languages
            else None,
        ),
        data_origin.describe(problem, raw_dir, text),
        engine,
    )
    print(summary(contents))


def archive(
    problem: Problem,
    data_dir: Path,
    raw_dir: Path | None,
    path: pathlib.Path,
) -> None:
    """Write the raw text and the vocabularies of data to an archive.

    Args:
        problem: problem whose data prepare() has made.
        data_dir: as for prepare().
        raw_dir: as for prepare().
        path: file to write.

    Raises:
        UserError: an archive cannot have the text of this problem.
    """
    folder = data_folder(data_dir, problem)
    contents = manifest.require(folder)
    text = _text_folders(folder, _unpacked(raw_dir, folder))
    with tempfile.TemporaryDirectory(dir=path.absolute().parent) as name:
        raw = pathlib.Path(name)
        for split in problem.splits:
            names = [file.name for file in problem.raw_files(split)]
            if len(names) == 2:
                pairs = problem.pairs(split, *text)
                parallel_files.write_pairs(raw, names, pairs)
        for vocabulary in manifest.vocabulary_files(contents):
            shutil.copyfile(folder / vocabulary, raw / vocabulary)
        described = {key: contents[key] for key in _DESCRIBED}
        json_files.write(raw / raw_archive.DESCRIPTION, described)
        try:  # what the archive's reader will do
            splits = _splits(problem, (raw, raw))
            changed = generate.changed_splits(folder, splits, contents)
        except errors.UserError:
            changed = ["all"]
        if changed:
            raise errors.UserError(
                f"The text of {problem.requested_name} is not in two files for "
                "each split, so that an archive cannot have it. Copy "
                f"{raw_dir or folder.parent / 'downloads'} instead."
            )
        raw_archive.pack(raw, path)
    print(f"Wrote {path}, {path.stat().st_size:,} bytes.")


def _unpacked(raw_dir, folder):
    """Return the folder of an archive's files; another folder as it is."""
    if raw_dir is None or files.is_url(raw_dir):
        return raw_dir
    path = files.expand_path(raw_dir)
    if not path.is_file():
        return raw_dir
    return raw_archive.unpack(path, folder.parent / "downloads")


def _archived_vocabularies(problem, raw):
    """Return the vocabularies beside raw text, if a problem would learn them.

    They are those of an archive, whose problem had the same arguments.
    """
    described = raw and raw / raw_archive.DESCRIPTION
    if not (described and described.is_file()):
        return []
    stored = json_files.read(described, {"problem": str, "arguments": dict})
    arguments = fields.with_defaults(type(problem), stored["arguments"])
    arguments["vocabulary"] = ""  # the archive has a copy of one that is given
    if (stored["problem"], arguments) != (
        problem.registered_name,
        problem.arguments,
    ):
        return []
    print("The vocabulary is that of the archive.")
    return vocabulary_pair.paths(raw, problem.separate_vocabularies)


def _text_folders(folder, raw_dir):
    """Return the folder of the raw files, or None, and that of downloads."""
    if raw_dir is not None:
        raw_dir = storage.download(storage.local_path(raw_dir))
    return raw_dir, folder.parent / "downloads"


def _splits(problem, text):
    """Return functions that start reading the pairs of each split."""
    return {
        split: functools.partial(problem.normalized_pairs, split, *text)
        for split in problem.splits
    }


def _require_same_text(contents, problem, folder, raw_dir):
    """Refuse a given folder of raw files unless the data has its text.

    The text is read if the folder is another one or its files have changed.
    """
    if data_origin.is_unchanged(contents, problem, folder, raw_dir):
        return
    splits = _splits(problem, _text_folders(folder, raw_dir))
    remedy = (
        "To use the text of --raw_dir, name another --data_dir; to use the "
        "data that is there, omit --raw_dir."
    )
    try:
        changed = generate.changed_splits(folder, splits, contents)
    except errors.UserError as error:
        raise errors.UserError(f"{error} {remedy}", error.see) from error
    if changed:
        raise errors.UserError(
            f"The text in --raw_dir={raw_dir} is not that of the data in "
            f"{storage.name_of(folder)}: {', '.join(changed)} differ"
            f"{'' if changed[1:] else 's'}. {remedy}"
        )


def wait_for_data(problem: Problem, data_dir: Path) -> pathlib.Path:
    """Wait until the data that another worker generated is visible here.

    Returns:
        The folder of the data.

    Raises:
        UserError: the data stays invisible, or has other settings.
    """
    folder = data_folder(data_dir, problem)
    if not files.wait_until(lambda: manifest.read(folder)):
        raise errors.UserError(
            f"There is no data in {folder}, where the first worker has it. All "
            "workers must see the same --data_dir."
        )
    return prepare(problem, data_dir)


def summary(contents: Mapping[str, Any]) -> str:
    """Summarize a manifest: pairs read, kept and dropped in each split."""
    lines = [
        f"Vocabulary {name}: {vocabulary['size']:,} subwords, "
        f"sha256 {vocabulary['sha256'][:12]}…"
        for name, vocabulary in manifest.vocabulary_files(contents).items()
    ]
    for split, counts in contents["splits"].items():
        dropped = ", ".join(
            f"{count:,} {reason.replace('_', ' ')}"
            for reason, count in counts["dropped"].items()
        )
        if "filters" in counts:
            lines += _filter_lines(split, counts["filters"])
        tokens = counts["tokens"]
        lines.append(
            f"{split}: {counts['kept']:,} of {counts['read']:,} pairs, "
            f"{tokens['inputs']:,} and {tokens['targets']:,} subwords "
            f"(dropped: {dropped})"
        )
        if directions := contents.get("directions"):
            counts = (f"{key} {n:,}" for key, n in directions[split].items())
            lines.append(f"  read: {', '.join(counts)}")
    return "\n".join(lines)


def _filter_lines(split, counts):
    """Return a line for each filter, and one for its first example."""
    dropped = counts["dropped"]
    yield (
        f"{split}: filters dropped {sum(dropped.values()):,} of "
        f"{counts['read']:,} pairs"
    )
    for name, count in dropped.items():
        yield f"  {name}: {count:,}"
        for example in counts["examples"][name][:1]:
            yield f"    {' | '.join(example)}"
