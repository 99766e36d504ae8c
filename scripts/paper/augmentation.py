"""Back-translation, distillation and BPE-dropout, each beside its baseline.

    python -m scripts.paper.augmentation --problem=multi30k_ende \\
        --problem_args=vocab_size=5000 --hparams_set=small --hparams=… \\
        --output_dir=FOLDER --seed=1 --seed=2 --seed=3

The baseline trains on --parallel_pairs, as if there were no more. The
translations of the other pairs, and --monolingual files, are text of one
language:

- back_translation (Sennrich et al. 2016, tagged as by Caswell et al. 2019): the
  row reverse translates the monolingual text. These pairs, whose sources begin
  with --tag, and the human ones are the corpus.
- bpe_dropout (Provilkov et al. 2020): the baseline with bpe_dropout=0.1.

The student, of --student_hparams, trains on all pairs:

- distilled (Kim and Rush 2016): on the outputs of a teacher, the row all_pairs,
  for the same sources; ensemble_distilled: on those of the teachers of all
  seeds together.

A row's models and synthetic text have its own seed. All rows have the same
number of steps, and compared rows the same vocabulary. All data is in
OUTPUT_DIR. Run it again to resume; a row with a JSON file is finished. --rows
selects rows; those that make their text are added. --decoding_speed measures
at the end how fast teacher and student translate, on a machine that is
otherwise idle.
"""

import functools
import pathlib
import threading

from absl import flags

from scripts.benchmarks import harness
from scripts.paper import (
    augmentation_rows,
    augmentation_table,
    augmented_corpora,
    experiment_queue,
    paired_tests,
    row_files,
    table_jobs,
    table_rows,
    table_runs,
)
from scripts.paper.augmentation_rows import ROWS, Recipes
from scripts.paper.commands import Commands
from t2t_repro.cli import command_line
from t2t_repro.data import manifest
from t2t_repro.io import files
from t2t_repro.metrics import scores
from t2t_repro.runs import stored_run
from t2t_repro.text import parallel_files

SCORE = "bleu"
SPEEDS = "decoding.json"
# The search whose speed is measured, as the decoder searches a file.
_DECODING = {"batch": 32, "threads": 2, "intra_threads": 1}


def define_flags():
    flags.FLAGS.set_default("hparams_set", "small")
    flags.DEFINE_integer(
        "parallel_pairs",
        10_000,
        "Training pairs of the baseline, the first of the problem.",
        lower_bound=1,
    )
    flags.DEFINE_multi_string(
        "monolingual",
        [],
        "File of more text in the target language, one sentence a line.",
    )
    flags.DEFINE_string(
        "tag", "<BT>", "First word of back-translated sources; '': none."
    )
    flags.DEFINE_string(
        "student_hparams",
        "hidden_size=64,num_encoder_layers=2,num_decoder_layers=1",
        "Hparams in which the student differs.",
    )
    flags.DEFINE_bool(
        "decoding_speed",
        False,
        "After the trainings, measure how fast teacher and student translate.",
    )
    table_rows.define_flags()


def main():
    values = flags.FLAGS
    selected = table_rows.select(ROWS, values.rows)
    names = augmentation_rows.with_teachers(selected)
    job = table_jobs.job(split="test", averaged=True)
    augmentation_rows.require_supported(job.problem)
    texts = augmented_corpora.write(
        job.problem,
        job.output_dir / "text",
        values.raw_dir,
        files.expand_path(values.data_dir) / "downloads",
        values.parallel_pairs,
        values.monolingual,
    )
    recipes = Recipes(job, texts)
    table_runs.require_enough_checkpoints(
        [recipes.row(name, values.seed[0]) for name in names], job
    )
    train(recipes, names)
    if values.decoding_speed:
        measure_speeds(recipes, names)
    print(f"\n{write_table(recipes)}")


def train(recipes: Recipes, names):
    """Train rows, seed by seed; those without synthetic text first."""
    lock = threading.Lock()

    def run_one(name, seed):
        log = recipes.job.output_dir / f"{recipes.corpus(name, seed)}.log"
        commands = Commands(log, recipes.job.processes)
        if recipes.job.processes == 1:
            commands = commands._replace(log=None)
        make_corpus(recipes, name, seed, commands)
        row, job = recipes.row(name, seed), recipes.row_job(name, seed)
        measure = functools.partial(_measure, recipes, job, commands)
        table_runs.run_row(row, job, measure)
        with lock:
            write_table(recipes)

    seeds = flags.FLAGS.seed
    count = len(names) * len(seeds)
    progress = experiment_queue.Progress(count, recipes.job.processes)
    for synthetic in False, True:
        tasks = [
            experiment_queue.Task(
                f"{name}, seed {seed}", functools.partial(run_one, name, seed)
            )
            for seed in seeds
            for name in names
            if bool(ROWS[name].translated_by) == synthetic
        ]
        experiment_queue.run(tasks, recipes.job.processes, progress)


def make_corpus(recipes: Recipes, name: str, seed: int, commands: Commands):
    """Write the synthetic text of a row, if it has one, unless it is there."""
    teacher, corpus = ROWS[name].translated_by, recipes.corpus(name, seed)
    if not teacher:
        return
    seeds = flags.FLAGS.seed if ROWS[name].ensemble else [seed]
    folders = [_training(recipes, teacher, seed) for seed in seeds]
    models = ",".join(str(stored_run.find_checkpoint(f)) for f in folders)
    given = f"--output_dir={folders[0]}", f"--checkpoint_path={models}"
    if ROWS[teacher].reverse:
        tag = flags.FLAGS.tag
        augmented_corpora.back_translate(
            recipes.texts, corpus, given, commands, tag
        )
    else:
        augmented_corpora.distill(recipes.texts, corpus, given, commands)


def _training(recipes, name, seed) -> pathlib.Path:
    return table_runs.training_folder(recipes.row(name, seed), recipes.job)


def _measure(recipes, job, commands, folder, stored) -> dict:
    """Return the figures of a training, BLEU of greedy search, and pairs."""
    sides = (1, 0) if job.problem.reverse else (0, 1)
    source, reference = (recipes.texts.path("test", side) for side in sides)
    greedy = folder / "greedy.txt"
    commands.run(
        "decoder",
        f"--output_dir={folder}",
        "--decode_hparams=beam_size=1",
        f"--decode_from_file={source}",
        f"--decode_to_file={greedy}",
    )
    metrics = {SCORE: job.problem.suite.build()[SCORE]}
    lines, references = (
        list(parallel_files.read_lines(path)) for path in (greedy, reference)
    )
    counted = scores.count(metrics, lines, [references])
    counts = manifest.read(job.data)
    return table_runs.measure_training(folder, stored) | {
        "greedy_bleu": scores.aggregate(metrics, counted)[SCORE].value,
        "pairs": counts["splits"]["train"]["kept"],
    }


def finished_rows(recipes: Recipes) -> list[dict]:
    """Return results of all finished rows and seeds, in the table's order."""
    return row_files.matching_rows(
        recipes.names,
        recipes.job.results_dir,
        lambda name, seed: row_files.row_settings(
            recipes.row(name, seed), recipes.row_job(name, seed)
        ),
    )


def write_table(recipes: Recipes) -> str:
    """Write table.json, table.md and paired_tests.json; return the table."""
    folder = recipes.job.results_dir
    results = finished_rows(recipes)
    paired_tests.write(folder, compare(recipes, results))
    tests = paired_tests.read(folder)
    speeds = read_speeds(recipes)
    summary = augmentation_table.summarize(results, SCORE, speeds)
    text = augmentation_table.lay_out(results, SCORE, tests, speeds)
    table_runs.write_table(recipes.job, summary, text)
    return text


def compare(recipes: Recipes, results) -> dict[str, list[dict]]:
    """Test the difference of each row from its base, seed by seed."""
    references = list(parallel_files.read_lines(recipes.texts.path("test", 1)))
    tests: dict[str, list[dict]] = {}
    for base in dict.fromkeys(r.base for r in ROWS.values() if r.base):
        compared = [
            result
            for result in results
            if base in (result["row"], ROWS[result["row"]].base)
        ]
        tests |= paired_tests.compare_with_base(
            compared,
            base,
            recipes.row_job(base, 1).problem.suite,
            SCORE,
            references,
            recipes.job.results_dir,
        )
    return tests


def measure_speeds(recipes: Recipes, names):
    """Measure the test sentences a second of teacher and students, one seed."""
    found = read_speeds(recipes)
    source = recipes.texts.path("test", 0)
    count = len(list(parallel_files.read_lines(source)))
    teacher = augmentation_rows.ALL_PAIRS
    for name in names:
        if not (name == teacher or ROWS[name].small):
            continue
        folder = _training(recipes, name, flags.FLAGS.seed[0])
        for beam_size in 1, 4:
            measured = harness.measure_in_process(
                "scripts.benchmarks.bench_decode_run",
                "file",
                output_dir=str(folder),
                inputs=str(source),
                beam_size=beam_size,
                **_DECODING,
            )
            rate = count / measured["seconds"]
            found.setdefault(name, {})[str(beam_size)] = rate
        files.write_json(recipes.job.results_dir / SPEEDS, found)


def read_speeds(recipes: Recipes) -> dict[str, dict[str, float]]:
    """Return {row: {beam size: sentences a second}} of those measured."""
    path = recipes.job.results_dir / SPEEDS
    return files.read_json(path) if path.exists() else {}


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
