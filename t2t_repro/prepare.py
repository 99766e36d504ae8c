"""Preparation of a problem's data: generated if missing, otherwise checked."""

import contextlib
import dataclasses
import functools
import io
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from t2t_repro import errors, registry
from t2t_repro.data import engines, generate, manifest
from t2t_repro.io import fields, files, storage
from t2t_repro.problem import Path, Problem
from t2t_repro.text import parallel_files, vocabulary_pair

# Of a manifest, what an archive has, too.
_DESCRIBED = ("problem", "arguments", "languages", "sources", "versions")


def data_folder(
    data_dir: Path, problem: Problem, split: str | None = None
) -> pathlib.Path:
    """Return the folder of a problem's data, which X and X_rev share.

    Data at a URL is copied first: its shards, or those of one split.
    """
    folder = storage.local_path(data_dir) / problem.data_name
    return storage.download(
        folder,
        lambda names: [
            name
            for name in names
            if name.startswith(split or "") or not name.endswith(".arrow")
        ],
    )


def prepare(
    problem: Problem,
    data_dir: Path,
    raw_dir: Path | None = None,
    num_workers: int | None = None,
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
            local engine; None: one for each core.
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
    made_by = engines.create(engine, num_workers, engines.threads)
    if not _generate_if_missing(problem, folder, raw_dir, made_by):
        contents = manifest.require(folder)
        _check_settings(contents, problem, folder)
        if raw_dir is not None:
            given = f"--raw_dir={raw_dir}"
            or_else = "; to use the data that is there, omit --raw_dir"
            _require_same_text(
                contents, problem, folder, raw_dir, given, or_else
            )
        elif other := _other_text_folder(contents, problem):
            given = f"the file of --problem_args in {other.absolute()}"
            _require_same_text(contents, problem, folder, other, given)
        else:
            _note_changed_text(contents, problem, folder)
        _note_changed_definition(contents, problem, folder)
        if problem.source_tags:  # X_rev may have made the data of X
            vocabularies = manifest.open_vocabularies(folder, problem.reverse)
            generate.require_tags(vocabularies.source, problem.source_tags)
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
    with files.locked(folder, wait=True):
        if manifest.read(folder):
            return False
        if unfinished := manifest.read_unfinished(folder):
            _check_settings(unfinished, problem, folder)
        engine.require_workers()
        print(f"Generating data in {folder}.")
        text = _text_folders(folder, raw_dir)
        contents = generate.generate(
            folder,
            _splits(problem, text),
            _with_archived_vocabularies(problem, text[0]),
            _describe(
                problem,
                problem.text_folder if raw_dir is None else raw_dir,
                text,
            ),
            engine,
            vocabulary_lines=functools.partial(problem.vocabulary_lines, *text)
            if problem.target_languages
            else None,
        )
        print(summary(contents))
    return True


def suited_hparams_set(folder: pathlib.Path) -> str:
    """Return the hparams set for as many training pairs as a folder has."""
    pairs = manifest.require(folder)["splits"]["train"]["kept"]
    return registry.hparams_sets.better_suited("base", pairs) or "base"


def archive(
    problem: Problem, data_dir: Path, raw_dir: Path | None, path: pathlib.Path
) -> None:
    """Write the raw text and vocabularies of prepared data to an archive.

    Raises:
        UserError: an archive cannot have the text of this problem, or the text
            has changed since.
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
        files.write_json(raw / parallel_files.DESCRIPTION, described)
        try:  # what the archive's reader will do
            splits = _splits(problem, (raw, raw))
            changed = generate.changed_splits(folder, splits, contents)
        except errors.UserError:
            changed = ["all"]
        if changed:
            splits = _splits(problem, text)
            if changed := generate.changed_splits(folder, splits, contents):
                raise errors.UserError(
                    f"The text has changed since the data in {folder} was "
                    f"made: {', '.join(changed)}. Restore it, or make the "
                    "data again with another --data_dir."
                )
            raise errors.UserError(
                f"The text of {problem.requested_name} is not in two files for "
                "each split, so that an archive cannot have it. Copy "
                f"{raw_dir or folder.parent / 'downloads'} instead."
            )
        parallel_files.pack(raw, path)
    print(f"Wrote {path}, {path.stat().st_size:,} bytes.")


def _unpacked(raw_dir, folder):
    """Return the folder of an archive's files; another folder as it is."""
    if raw_dir is None or files.is_url(raw_dir):
        return raw_dir
    path = files.expand_path(raw_dir)
    if not path.is_file():
        return raw_dir
    return parallel_files.unpack(path, folder.parent / "downloads")


def _with_archived_vocabularies(problem, raw):
    """Return the problem with the vocabularies of an archive, if it learns any.

    They are those of a problem with the same arguments.
    """
    described = raw and raw / parallel_files.DESCRIPTION
    if problem.vocabulary or not (described and described.is_file()):
        return problem
    stored = files.read_json(described, {"problem": str, "arguments": dict})
    arguments = fields.with_defaults(type(problem), stored["arguments"])
    arguments["vocabulary"] = ""  # the archive has a copy of one that is given
    if (stored["problem"], arguments) != (
        problem.registered_name,
        problem.arguments,
    ):
        return problem
    print("The vocabulary is that of the archive.")
    paths = vocabulary_pair.paths(raw, problem.separate_vocabularies)
    return dataclasses.replace(
        problem,
        vocabulary=":".join(map(str, paths)),
        normalization="",  # the vocabulary has it
    )


def _text_folders(folder, raw_dir):
    """Return the folder of the raw files, or None, and that of downloads."""
    if raw_dir is not None:
        raw_dir = storage.download(storage.local_path(raw_dir))
    return raw_dir, folder.parent / "downloads"


def _splits(problem, text):
    """Return functions that start reading the pairs of each split."""
    return {
        split: functools.partial(_aligned_pairs, problem, split, *text)
        for split in problem.splits
    }


def _aligned_pairs(problem, split, *text):
    """Yield the pairs of a split, with alignments if the problem has them."""
    pairs = problem.normalized_pairs(split, *text)
    alignments = problem.read_alignments(split, *text)
    if alignments is None:
        return pairs
    return parallel_files.with_alignments(pairs, alignments)


def _other_text_folder(contents, problem):
    """Return the folder of a file's relative path, if the data is of another.

    Two projects may have files of the same name.
    """
    folder = problem.text_folder
    if folder is None or _absolute(folder) == _raw_dir(contents):
        return None
    return folder if _raw_bytes(problem, folder) else None


def _require_same_text(contents, problem, folder, raw_dir, given, or_else=""):
    """Refuse a given folder of raw files unless the data has its text.

    What is divided for the comparison does not replace the text of the data.
    """
    if _is_unchanged(contents, problem, folder, raw_dir):
        return
    raw_dir, _ = _text_folders(folder, raw_dir)
    remedy = f"To use this text, name another --data_dir{or_else}."
    place = folder.parent if os.access(folder.parent, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(dir=place) as temporary,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        splits = _splits(problem, (raw_dir, pathlib.Path(temporary)))
        try:
            changed = generate.changed_splits(folder, splits, contents)
        except errors.UserError as error:
            raise errors.UserError(f"{error} {remedy}", error.see) from error
    if changed:
        raise errors.UserError(
            f"The text in {given} is not that of the data in "
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
        if "aligned" in counts:
            lines.append(
                f"{split}: {counts['aligned']:,} of {counts['kept']:,} pairs "
                "have word alignments"
            )
        tokens = counts["tokens"]
        lines.append(
            f"{split}: {counts['kept']:,} of {counts['read']:,} pairs, "
            f"{tokens['inputs']:,} and {tokens['targets']:,} subwords "
            f"(dropped: {dropped})"
        )
        is_filtered = split == "train" and "directions" not in contents
        lines += _check_lines(counts, is_filtered)
        if directions := contents.get("directions"):
            counts = (f"{key} {n:,}" for key, n in directions[split].items())
            lines.append(f"  read: {', '.join(counts)}")
    return "\n".join(lines)


def _check_lines(counts, is_filtered):
    """Yield a line for each thing that checks of a split's text found."""
    if not counts["read"]:
        yield "  it is empty: there is nothing to score"
    if found := counts.get("in_training"):
        yield (
            f"  {found['inputs']:,} inputs and {found['targets']:,} targets "
            "are in the training text, too, so that scores are too good"
        )
    if found := counts.get("web"):
        remedy = "; filters=web drops them" if is_filtered else ""
        yield f"  {found['pairs']:,} have remains of web pages{remedy}, as"
        yield f"    {' | '.join(found['example'])}"


def _filter_lines(split, counts):
    dropped = counts["dropped"]
    yield (
        f"{split}: filters dropped {sum(dropped.values()):,} of "
        f"{counts['read']:,} pairs"
    )
    for name, count in dropped.items():
        yield f"  {name}: {count:,}"
        for example in counts["examples"][name][:1]:
            yield f"    {' | '.join(example)}"


# Origin of data, as its manifest describes it, compared with a problem.


def _describe(problem, raw_dir, text):
    """Return the origin of data that is generated, for its manifest."""
    given = raw_dir is not None and [{"raw_dir": _absolute(raw_dir)}]
    directions = {
        split: problem.count_directions(split, *text)
        for split in problem.splits
    }
    return {
        "problem": problem.registered_name,
        "arguments": problem.arguments,
        "languages": problem.stored_languages,
        "sources": {
            split: given or problem.sources(split) for split in problem.splits
        },
        **({"directions": directions} if problem.target_languages else {}),
        "raw_bytes": _raw_bytes(problem, raw_dir),
        "definition": _definition(problem),
    }


def _definition(problem):
    """Return {file: sha256} of the user's classes that make the data."""
    classes = [
        type(problem),
        vocabulary_pair.vocabulary_class(problem.vocabulary_type),
        *(problem.pair_filters.classes if problem.filters else ()),
    ]
    checksums = map(registry.checksums_of_class, classes)
    return {file: sha256 for each in checksums for file, sha256 in each.items()}


def _check_settings(contents, problem, folder):
    """Raise a UserError if data was made with other settings.

    Arguments that were added after the manifest was written have their
    defaults.
    """
    expected = {"problem": problem.registered_name} | problem.arguments
    for name in "decode_hparams", "pipeline_tag":
        expected.pop(name, None)  # the data is the same with any
    arguments = contents.get("arguments")
    stored = {"problem": contents.get("problem")}
    if isinstance(arguments, dict):
        stored |= fields.with_defaults(type(problem), arguments)
    if expected["vocabulary"] and stored.get("vocabulary"):
        # The data has a copy: the file may have been moved or removed.
        paths = stored.pop("vocabulary"), expected.pop("vocabulary")
        exist = all(path.exists() for path in problem.vocabulary_paths)
        if exist or paths[0] != paths[1]:
            given = vocabulary_pair.load(
                problem.vocabulary_type, problem.vocabulary_paths
            )
            for name, vocabulary in given.files.items():
                expected[f"{name} sha256"] = vocabulary.sha256
            for name, entry in manifest.vocabulary_files(contents).items():
                stored[f"{name} sha256"] = entry["sha256"]
    if differences := list(fields.differences(stored, expected)):
        raise errors.UserError(
            f"The data in {folder} was made with other settings: "
            f"{'; '.join(differences)}. Remove the folder, or name another "
            "--data_dir."
        )


def _note_changed_definition(contents, problem, folder):
    """Print which modules that make the data have changed since."""
    before = contents.get("definition")
    now = _definition(problem)
    if before and now and (names := registry.changed_definitions(before, now)):
        print(
            f"Note: {', '.join(names)} of --usr_dir changed after the data in "
            f"{storage.name_of(folder)} was made. If {problem.registered_name} "
            "yields other data now, remove the folder.",
            file=sys.stderr,
        )


def _note_changed_text(contents, problem, folder):
    before, raw_dir = contents.get("raw_bytes"), _raw_dir(contents)
    if not before or not pathlib.Path(raw_dir).is_absolute():
        return  # the path is relative in manifests of earlier versions
    now = _raw_bytes(problem, raw_dir)  # those that were removed are missing
    if names := [name for name in now if now[name] != before.get(name)]:
        print(
            f"Note: {', '.join(names[:5])}{' …' if names[5:] else ''} in "
            f"{raw_dir} changed after the data in {storage.name_of(folder)} "
            "was made. To use the present text, remove that folder.",
            file=sys.stderr,
        )


def _is_unchanged(contents, problem, folder, raw_dir):
    """Return whether a folder of raw files is as it was when data was made.

    The files are not read. Some may be gone, and a URL counts as unchanged.
    What is copied in later may have an old time of modification, but has a new
    one of its inode (st_ctime); where raw files and data are copied to another
    machine, both have new ones.
    """
    if _absolute(raw_dir) != _raw_dir(contents):
        return False
    if files.is_url(raw_dir):
        return True
    before = contents.get("raw_bytes", {})
    raw_files = files.expand_path(raw_dir)
    made = (folder / manifest.MANIFEST).stat()

    def is_older(path):
        found = path.stat()
        return (
            found.st_mtime_ns < made.st_mtime_ns
            and found.st_ctime_ns < made.st_ctime_ns
        )

    return bool(before) and all(
        size == before.get(name) and is_older(raw_files / name)
        for name, size in _raw_bytes(problem, raw_dir).items()
    )


def _raw_dir(contents):
    """Return the folder of the raw files of data; "": there was none."""
    sources = contents["sources"].get("train") or [{}]
    return sources[0].get("raw_dir", "")


def _absolute(raw_dir):
    return storage.name_of(storage.local_path(raw_dir))


def _raw_bytes(problem, raw_dir):
    """Return {name: bytes} of raw files; {} if they are elsewhere."""
    if raw_dir is None or files.is_url(raw_dir):
        return {}
    folder = files.expand_path(raw_dir)
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in problem.raw_paths(folder)
    }
