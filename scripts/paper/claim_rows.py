"""Trainings of claims.json that are no rows of Table 3, and figures of base.

    python -m scripts.paper.claim_rows --problem=… --hparams_set=table3_base \\
        --output_dir=FOLDER --rows=post_warmup,post_at_once --seed=1 --seed=2
    python -m scripts.paper.claim_rows --figures=search --trainings=RUN,RUN \\
        --results_dir=scripts/results/claims

The first form trains rows, which differ from the hparams set in VARIANTS.
table3_variations describes how to resume and how to reduce the rows. The second
form writes search.json: averages, searches and ensembles of trainings of base;
heads.json: how much the heads of a layer differ. --figures=greedy adds BLEU of
greedy search to the files of rows of Table 3.
"""

import dataclasses
import itertools
import pathlib
import statistics

import keras
import numpy as np
from absl import flags

from scripts.paper import table_rows, verdicts
from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.decoding import translate
from t2t_repro.evaluation import evaluation
from t2t_repro.io import files
from t2t_repro.metrics import scores
from t2t_repro.runs import checkpoints
from t2t_repro.runs.run import Run
from t2t_repro.sweeps import rows, running, tables
from t2t_repro.text.test_sets import TestSet

SPLIT = "test"  # of rows
BLEU = "bleu_compound_split"

_DEEP = {"num_hidden_layers": 6, "train_steps": 1_000}
_WARMUP = {
    "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay*"
    "rsqrt_hidden_size"
}
_AT_ONCE = {  # the same peak
    "learning_rate_schedule": "constant*rsqrt_decay*rsqrt_hidden_size"
}
_PRE_NORM = {
    "layer_preprocess_sequence": "n",
    "layer_postprocess_sequence": "da",
}
# At base's rate, 1.0, post-norm learned nothing, with a warm-up or without. At
# 0.25 and 0.5, one training each with a warm-up had perplexities of 70 and 74.
_SLOW = {"learning_rate_constant": 0.25}
_ONE_HEAD = {"num_heads": 1, "train_steps": 2_000}
_UNSCALED = {"attention_type": "dot_product_unscaled"}
_ADDITIVE = {"attention_type": "additive"}
_DK8, _DK256 = {"attention_key_channels": 8}, {"attention_key_channels": 256}
_RESTRICTED = {"train_steps": 2_000}
_SHORT = {"max_length": 16, "train_steps": 3_000}
_WIDE = {"hidden_size": 128, "filter_size": 512, "train_steps": 4_000}
VARIANTS = {
    "post_warmup": _DEEP | _WARMUP | _SLOW,
    "post_at_once": _DEEP | _AT_ONCE | _SLOW,
    "pre_warmup": _DEEP | _WARMUP | _PRE_NORM,
    "pre_at_once": _DEEP | _AT_ONCE | _PRE_NORM,
    "scaled_dk256": _ONE_HEAD | {"attention_type": "dot_product"} | _DK256,
    "unscaled_dk8": _ONE_HEAD | _UNSCALED | _DK8,
    "unscaled_dk256": _ONE_HEAD | _UNSCALED | _DK256,
    "additive_dk8": _ONE_HEAD | _ADDITIVE | _DK8,
    "additive_dk256": _ONE_HEAD | _ADDITIVE | _DK256,
    "restricted_none": _RESTRICTED | {"restricted_attention": 0},
    "restricted_2": _RESTRICTED | {"restricted_attention": 2},
    "restricted_8": _RESTRICTED | {"restricted_attention": 8},
    "short_sinusoids": _SHORT | {"pos": "sinusoids"},
    "short_learned": _SHORT | {"pos": "emb"},
    "short_none": _SHORT | {"pos": "none"},
    "dropout_0": _WIDE | {"layer_prepostprocess_dropout": 0.0},
    "dropout_01": _WIDE | {"layer_prepostprocess_dropout": 0.1},
    "dropout_03": _WIDE | {"layer_prepostprocess_dropout": 0.3},
}
BASE = "restricted_none"  # base itself, for the paired tests

ALPHAS = (0.0, 0.3, 0.6, 0.9, 1.2)
BEAMS = (2, 8, 16)  # beside 1 and 4
MAP_SEEDS = 2  # trainings for which all beams and alphas are searched
TRACED = 200  # sentences of heads.json


def define_flags():
    flags.DEFINE_enum(
        "figures",
        None,
        ["search", "heads", "greedy"],
        "Instead of trainings: write the figures of --trainings.",
    )
    flags.DEFINE_list(
        "trainings",
        [],
        "Folders of trainings: of base, one for each seed, or of any rows of "
        "Table 3 for greedy.",
    )
    table_rows.define_flags()


def main():
    values = flags.FLAGS
    if values.figures:
        names = common_flags.required("trainings")
        folders = [pathlib.Path(name) for name in names]
        results = pathlib.Path(common_flags.required("results_dir"))
        results.mkdir(parents=True, exist_ok=True)
        if values.figures == "greedy":
            add_greedy(folders, results / "table3")
            return
        write = {"search": search_figures, "heads": head_figures}
        write[values.figures](folders, results / f"{values.figures}.json")
        return
    variants = {n: rows.Variant("", v) for n, v in VARIANTS.items()}
    table = table_rows.table(variants, BASE)
    job = table_rows.job(SPLIT, averaged=False)
    compared = tables.Comparison(
        job.results_dir, job.score, BASE, verdicts.MARGIN
    )
    table_rows.run(table, job, compared.write, measure)


def measure(run: Run, stored: dict) -> dict:
    """Return the figures of a training, with BLEU beyond its length.

    Longer sources than max_length were not in the training.
    """
    corpus = running.open_corpus(run, SPLIT)
    longer = np.flatnonzero(corpus.lengths["inputs"] > run.hparams.max_length)
    figures = running.measure_training(run, stored)
    if not longer.size:
        return figures
    lines, references = (
        [texts[i] for i in longer]
        for texts in (
            run.stored(SPLIT).read_translations(stored),
            corpus.text("targets"),
        )
    )
    suite = run.problem.suite._replace(names=("bleu",))
    beyond = scores.score(suite, lines, [references])["bleu"]
    figures["beyond"] = {
        "sentences": len(lines),
        "bleu": beyond.value,
        "signature": beyond.signature,
    }
    return figures


def add_greedy(folders, results: pathlib.Path) -> None:
    """Add BLEU of greedy search to the files of rows that lack it.

    It has a fifth of the noise between seeds of beam search, which gives
    nothing for up to 264 of 3,014 sentences with half of the trainings of base:
    label smoothing makes an end at once about as probable as a doubtful
    sentence.
    """
    for folder in folders:
        path = results / f"{folder.name.rpartition('-')[0]}.json"
        row = files.read_json(path) if path.exists() else None
        if not row or "greedy" in row["figures"]:
            continue  # unfinished, or has it
        run = Run.open(folder)
        search = dataclasses.replace(run.problem.search, beam_size=1, alpha=0.0)
        test_set = _test_set(run, row["split"])
        row["figures"]["greedy"] = _bleu([run], test_set, search)
        print(f"{path.stem}: {row['figures']['greedy']:.2f}", flush=True)
        files.write_json(path, row)


def _test_set(run, split) -> TestSet:
    corpus = running.open_corpus(run, split)
    return TestSet(corpus.text("inputs"), [corpus.text("targets")])


def _bleu(runs, test_set, search, checkpoints=None) -> float:
    """Return BLEU of an ensemble."""
    return evaluation.evaluate(
        runs[0],
        test_set,
        checkpoint_path=checkpoints,
        decode_hparams=search,
        samples=1,
    ).scores[BLEU]


def search_figures(folders, path: pathlib.Path) -> None:
    """Write BLEU of averages, searches and ensembles, and their differences.

    What the file has is not computed again.

    Raises:
        UserError: the file has figures of trainings of other names.
    """
    stored = files.read_json(path) if path.exists() else {}
    names = [folder.name for folder in folders]
    if stored.setdefault("trainings", names) != names:
        raise errors.UserError(
            f"{path} has figures of {', '.join(stored['trainings'])}; got "
            f"{', '.join(names)}. Name another --results_dir."
        )
    found = stored.setdefault("BLEU", {})
    trainings = list(map(Run.open, folders))
    test_set = _test_set(trainings[0], "validation")

    def bleu(seed, averages, beam=4, alpha=0.6, ensemble=1):
        key = f"seed {seed}, {averages} checkpoints, beam {beam}, alpha {alpha}"
        key += f", ensemble of {ensemble}" * (ensemble > 1)
        if key not in found:
            members = trainings[seed : seed + ensemble]
            search = dataclasses.replace(
                members[0].problem.search, beam_size=beam, alpha=alpha
            )
            paths = [average(run, averages) for run in members]
            found[key] = _bleu(members, test_set, search, paths)
            print(f"{key}: {found[key]:.2f}", flush=True)
            files.write_json(path, stored)
        return found[key]

    seeds = range(len(trainings))
    base = [bleu(seed, 5) for seed in seeds]
    last = [bleu(seed, 1) for seed in seeds]
    many = [bleu(seed, 20) for seed in seeds]
    greedy = [bleu(seed, 5, beam=1, alpha=0.0) for seed in seeds]
    by_alpha = {a: [bleu(s, 5, alpha=a) for s in seeds] for a in ALPHAS}
    best = max(by_alpha.values(), key=statistics.fmean)
    pairs = range(0, len(trainings) - 1, 2)
    ensembles = [bleu(seed, 5, ensemble=2) for seed in pairs]
    single = [statistics.fmean(base[seed : seed + 2]) for seed in pairs]

    def gains(ours, others):
        return [a - b for a, b in zip(ours, others, strict=True)]

    stored |= {
        "average of 5 - last checkpoint": gains(base, last),
        "average of 20 - average of 5": gains(many, base),
        "beam 4 - greedy": gains(base, greedy),
        "alpha 0.6 - best alpha": gains(base, best),
        "ensemble of 2 - one": gains(ensembles, single),
    }
    files.write_json(path, stored)
    for seed, beam, alpha in itertools.product(
        seeds[:MAP_SEEDS], BEAMS, ALPHAS
    ):
        bleu(seed, 5, beam, alpha)


def average(run: Run, number: int) -> pathlib.Path:
    """Return the path of an average of the last checkpoints of a run."""
    paths = run.last_checkpoints(number)
    return checkpoints.average(paths, run.output_dir / f"averaged_{number}")


def head_figures(folders, path: pathlib.Path) -> None:
    """Write how much the mean distances of heads vary, beside random weights.

    For each training, the mean over the encoder's layers of the standard
    deviation between heads of their mean distance |i - j|.
    """
    trained, untrained = [], []
    for seed, folder in enumerate(folders, 1):
        run = Run.open(folder)
        (model,) = run.models()
        trained.append(_variety(run, model))
        keras.utils.set_random_seed(seed)
        untrained.append(_variety(run, run.build_model()))
        print(f"{folder.name}: {trained[-1]:.2f}, random {untrained[-1]:.2f}")
    ratios = [a / b for a, b in zip(trained, untrained, strict=True)]
    files.write_json(
        path,
        {
            "variety of distances": ratios,
            "trained": trained,
            "random": untrained,
        },
    )


def _variety(run, model):
    corpus = running.open_corpus(run, "validation")
    search = dataclasses.replace(
        run.problem.search, beam_size=1, extra_length=0
    )
    translator = translate.BatchTranslator([model], run.vocabularies, search)
    distances = []  # of each sentence, [layers, H]
    for line in corpus.text("inputs")[:TRACED]:
        weights = translator.attention(
            line
        ).weights.encoder  # [layers, H, L, L]
        places = np.arange(weights.shape[-1])
        apart = np.abs(places[:, None] - places)
        distances.append((weights * apart).sum(-1).mean(-1))
    return float(np.mean(distances, axis=0).std(axis=-1).mean())


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
