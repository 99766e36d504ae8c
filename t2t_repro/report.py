"""Writes report/index.html: data, curves, scores, cost, samples, attention.

    python -m t2t_repro.report --output_dir=…
    python -m t2t_repro.report --output_dir=one/run,other/run

The page holds all it needs, of one run or of several side by side. Pictures of
attention are of --sentence, which may be given several times, or of some of
the validation split.
"""

from absl import flags

from t2t_repro import common_flags, errors, files, prepare, runs
from t2t_repro.data import manifest as manifests
from t2t_repro.data import plan
from t2t_repro.decoding import attend
from t2t_repro.reports import cost, curves, drawing, page, pictures, samples
from t2t_repro.text import corpora, linear
from t2t_repro.training import checkpoints

_SENTENCE = flags.DEFINE_multi_string(
    "sentence", [], "Sentence to draw attention of; may be given again."
)
_NUM_SENTENCES = flags.DEFINE_integer(
    "num_sentences",
    3,
    "Without --sentence: how many of the validation split to draw attention "
    "of, from middling to long ones; 0: no pictures.",
    lower_bound=0,
)
_PICTURES = flags.DEFINE_bool(
    "pictures", False, "Also write every picture of attention as a file."
)
_DEVICES = flags.DEFINE_integer(
    "devices", 1, "GPUs, or CPUs, that each run trained on.", lower_bound=1
)
_SUSTAINED_TFLOPS = common_flags.define_number(
    "sustained_tflops",
    None,
    "What each of them sustains, in TFLOP/s; the paper takes 9.5 for a P100, "
    "6.0 for an M40, 3.7 for a K40 and 2.8 for a K80.",
    lower_bound=1e-6,
)
flags.adopt_module_key_flags(common_flags)


def main():
    expected = common_flags.expected_settings()
    folders = common_flags.output_dirs()
    if len(set(folders)) < len(folders):
        raise errors.UserError(
            "--output_dir names a run twice; got "
            f"{', '.join(map(str, folders))}. Name each once."
        )
    opened = [runs.open_run(folder, expected) for folder in folders]
    folder = folders[0] / "report"
    files.require_writable(folder)
    subjects = [
        _subject(run, name)
        for run, name in zip(opened, _names(folders), strict=True)
    ]
    files.write_text(folder / "index.html", page.render(subjects))
    print(f"Wrote {folder / 'index.html'}.")
    if _PICTURES.value:
        _write_pictures(folder, subjects)


def _names(folders):
    """The last part of each path, or all of it where that tells too little."""
    names = [folder.absolute().name for folder in folders]
    different = len(set(names)) == len(names)
    return names if different else [str(folder) for folder in folders]


def _subject(run, name):
    data = prepare.data_folder(common_flags.data_dir(run), run.problem)
    manifest = _manifest(data, run)
    read = curves.read(run.output_dir)
    folder = run.output_dir / runs.TRANSLATIONS
    scores = runs.score_sheets(run.output_dir)
    ranked = {
        split: _samples(run, data, split, folder / f"{split}.txt")
        for split in scores
        if manifest and split in manifest["splits"]
    }
    checkpoint, attention = _attention(run, manifest and data)
    return page.Subject(
        name=name,
        settings=run.settings,
        curves=read,
        cost=cost.spent(
            run.hparams,
            run.subwords.size,
            manifest and _mean_length(run, data),
            _steps(run, read),
            curves.training_seconds(read),
            _sustained(),
        ),
        manifest=manifest,
        scores=scores,
        samples=ranked,
        parses={
            split: _parses(run.problem, found)
            for split, found in ranked.items()
        },
        checkpoint=checkpoint,
        attention=attention,
    )


def _manifest(data, run):
    """Of the data that the run was trained on; None: it is not there."""
    same = manifests.sha256(data) == run.settings["manifest_sha256"]
    return manifests.read(data) if same else None


def _mean_length(run, data):
    """Subwords of a target that was trained on."""
    corpus = manifests.open_corpus(data, "train", run.problem.reverse)
    return plan.mean_length(corpus.lengths, run.hparams.max_length)


def _steps(run, read):
    """How many were done; where there are no events, by the checkpoints."""
    kept = checkpoints.list_checkpoints(run.output_dir / runs.CHECKPOINTS)
    return max([curves.steps_done(read), *map(checkpoints.step_of, kept)])


def _sustained():
    """FLOP/s of all devices, or None."""
    if _SUSTAINED_TFLOPS.value is None:
        return None
    return _DEVICES.value * _SUSTAINED_TFLOPS.value * 1e12


def _samples(run, data, split, path):
    corpus = manifests.open_corpus(data, split, run.problem.reverse)
    translations = list(corpora.read_lines(path))
    if len(translations) != len(corpus):
        raise errors.UserError(
            f"{path} has {len(translations):,} lines for {len(corpus):,} of "
            f"the split. Run evaluate --split={split} again."
        )
    return samples.rank(
        corpus.text("inputs"), translations, corpus.text("targets")
    )


def _parses(problem, ranked):
    """The first sample of each kind as pictures, where samples are trees."""
    if not problem.writes_trees:
        return []
    first = [sample for kind in ranked for sample in kind[:1]]
    return [
        page.Parse(
            f"line {one.line}",
            _draw(one.inputs, one.translation),
            _draw(one.inputs, one.reference),
        )
        for one in first
    ]


def _draw(sentence, side):
    """A tree of a sentence, of which a sample has the line in parts."""
    line = " ".join(part.text for part in side)
    return drawing.svg(linear.read(line, sentence.split()).tree)


def _attention(run, data):
    """The checkpoint's name and pictures.Sentences; None: there is none yet."""
    normalize, _ = run.problem.normalizers
    given = list(map(normalize, common_flags.sentences(_SENTENCE)))
    lines = given or _lines(run, data)
    if not lines:
        return None, []
    try:
        path = runs.find_checkpoint(run.output_dir)
    except errors.UserError:  # a training that has just begun
        return None, []
    (model,), _ = runs.load_models(run, str(path))
    observer = attend.Observer(model, run.subwords, run.problem.search)
    seen = map(observer.look, lines)
    return path.name, [pictures.of_sentence(*one) for one in seen]


def _lines(run, data):
    """--num_sentences of the validation split."""
    if data is None:
        return []
    corpus = manifests.open_corpus(data, "validation", run.problem.reverse)
    chosen = samples.of_many_lengths(
        corpus.lengths["inputs"], _NUM_SENTENCES.value
    )
    text = corpus.text("inputs")
    return [text[i] for i in chosen]


def _write_pictures(folder, subjects):
    names = pictures.folders([subject.name for subject in subjects])
    for subject, name in zip(subjects, names, strict=True):
        place = folder / "attention" / name
        count = pictures.write(place, subject.attention)
        print(f"Wrote {count} pictures to {place}.")


if __name__ == "__main__":
    common_flags.run(main)
