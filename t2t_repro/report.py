"""Writes report/index.html: curves, scores, samples and settings of runs.

python -m t2t_repro.report --output_dir=…
python -m t2t_repro.report --output_dir=one/run,other/run
"""

from absl import flags

from t2t_repro import common_flags, files, prepare, runs
from t2t_repro.data import manifest
from t2t_repro.reports import cost, page
from t2t_repro.text import corpora

flags.adopt_module_key_flags(common_flags)


def main():
    expected = common_flags.expected_settings()
    opened = [
        runs.open_run(folder, expected) for folder in common_flags.output_dirs()
    ]
    subjects = [_subject(run) for run in opened]
    folder = opened[0].output_dir / "report"
    folder.mkdir(exist_ok=True)
    files.write_text(folder / "index.html", page.render(subjects))
    print(f"Wrote {folder / 'index.html'}.")


def _subject(run):
    folder = run.output_dir / runs.TRANSLATIONS
    scores = {
        path.stem: files.read_json(path)
        for path in sorted(folder.glob("*.json"))
    }
    samples = [
        sample for split in scores for sample in _samples(run, folder, split)
    ]
    return page.Subject(
        name=str(run.output_dir),
        settings=run.settings,
        parameters=cost.parameters(run.hparams, run.subwords.size),
        scores=scores,
        samples=samples,
        output_dir=run.output_dir,
    )


def _samples(run, folder, split):
    """The first lines of a split: input, translation, reference."""
    corpus = manifest.open_corpus(
        prepare.data_folder(run.settings["data_dir"], run.problem),
        split,
        run.problem.reverse,
    )
    columns = (
        corpus.text("inputs"),
        corpora.read_lines(folder / f"{split}.txt"),
        corpus.text("targets"),
    )
    return list(zip(*columns, strict=True))[: page.SAMPLES]


if __name__ == "__main__":
    common_flags.run(main)
