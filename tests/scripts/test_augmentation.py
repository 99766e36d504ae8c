"""Augmentation: its texts, its rows, the verdicts, and a small run."""

import types

import pytest

from scripts.paper import (
    augmentation,
    augmentation_rows,
    augmentation_table,
    augmented_corpora,
    commands,
    row_files,
    table_jobs,
)
from t2t_repro import errors, registry
from t2t_repro.io import files
from t2t_repro.problem import build_problem

MICRO = (
    "hidden_size=16,filter_size=16,num_heads=2,num_hidden_layers=1,"
    "batch_tokens=256,max_length=32,train_steps=4,save_checkpoints_steps=2,"
    "num_averaged_checkpoints=2"
)


@pytest.fixture(autouse=True, scope="module")
def _definitions():
    registry.load_definitions()


@pytest.fixture
def raw(tmp_path):
    """Raw text of 40 pairs: digits and their letters."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for split, first, last in (
        ("train", 0, 40),
        ("validation", 40, 43),
        ("test", 43, 46),
    ):
        digits = [str(number) for number in range(first, last)]
        letters = ["".join("abcdefghij"[int(d)] for d in x) for x in digits]
        for language, lines in (("xx", digits), ("yy", letters)):
            text = "".join(f"{' '.join(line)}\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, "utf-8")
    return folder


def problem(name="parallel_text"):
    return build_problem(name, "name=d,languages=xx-yy,vocab_size=288")


def write(raw, folder, pairs=30, monolingual=(), name="parallel_text"):
    return augmented_corpora.write(
        problem(name), folder, raw, raw, pairs, monolingual
    )


def lines(path):
    return path.read_text("utf-8").splitlines()


def test_small_corpus_and_monolingual_text_share_no_pair(raw, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("k k\n\n", "utf-8")
    texts = write(raw, tmp_path / "text", monolingual=[more])
    assert lines(texts.path("original", 0)) == lines(raw / "train.xx")[:30]
    assert lines(texts.path("original", 1)) == lines(raw / "train.yy")[:30]
    assert lines(texts.path("all", 1)) == lines(raw / "train.yy")
    monolingual = lines(texts.path("monolingual", 1))
    assert monolingual == [*lines(raw / "train.yy")[30:], "k k"]
    assert lines(texts.path("test", 0)) == lines(raw / "test.xx")


def test_reversed_problem_has_its_target_language_monolingual(raw, tmp_path):
    texts = write(raw, tmp_path / "text", name="parallel_text_rev")
    assert texts.languages == ("yy", "xx")
    assert lines(texts.path("monolingual", 1)) == lines(raw / "train.xx")[30:]


def test_texts_of_other_settings_are_an_error(raw, tmp_path):
    write(raw, tmp_path / "text")
    (raw / "train.xx").unlink()  # the text is there
    write(raw, tmp_path / "text")
    with pytest.raises(errors.UserError, match="another problem, --parallel"):
        write(raw, tmp_path / "text", pairs=20)


def test_small_corpus_must_leave_pairs_over(raw, tmp_path):
    with pytest.raises(errors.UserError, match="1 to 39; got 40"):
        write(raw, tmp_path / "text", pairs=40)


class Decoder:
    """Stand-in for the decoder: capitals instead of a translation."""

    def __init__(self):
        self.calls = 0

    def run(self, command, *arguments):
        assert command == "decoder"
        self.calls += 1
        given = dict(flag.split("=", 1) for flag in arguments)
        with open(given["--decode_from_file"], encoding="utf-8") as file:
            text = file.read().upper()
        with open(given["--decode_to_file"], "w", encoding="utf-8") as file:
            file.write(text.replace("D A", ""))  # 30 has no translation


def test_back_translated_sources_are_tagged_and_written_once(raw, tmp_path):
    texts, decoder = write(raw, tmp_path / "text"), Decoder()
    for _ in range(2):
        augmented_corpora.back_translate(texts, "bt", [], decoder, "<BT>")
    assert lines(texts.path("bt", 0))[:2] == ["", "<BT> D B"]
    assert lines(texts.path("bt", 1)) == lines(texts.path("monolingual", 1))
    augmented_corpora.back_translate(texts, "untagged", [], decoder, "")
    assert lines(texts.path("untagged", 0))[:2] == ["", "D B"]
    assert decoder.calls == 2


def test_distilled_pairs_have_the_sources_of_all(raw, tmp_path):
    texts, decoder = write(raw, tmp_path / "text"), Decoder()
    for _ in range(2):
        augmented_corpora.distill(texts, "distilled", [], decoder)
    assert lines(texts.path("distilled", 0)) == lines(raw / "train.xx")
    assert len(lines(texts.path("distilled", 1))) == 40
    assert decoder.calls == 1


@pytest.fixture
def recipes(raw, tmp_path, monkeypatch):
    """The rows of a small problem, and the flags as attributes."""
    values = types.SimpleNamespace(
        hparams_set="tiny",
        hparams=MICRO,
        student_hparams="hidden_size=8",
        mixed_precision="float32",
        seed=[1, 2],
        num_workers=1,
        tag="<BT>",
    )
    monkeypatch.setattr(augmentation_rows.flags, "FLAGS", values)
    monkeypatch.setattr(row_files, "command_line", lambda: "c")
    job = table_jobs.Job(
        problem(),
        "test",
        averaged=True,
        data=tmp_path / "data",
        output_dir=tmp_path / "rows",
        results_dir=tmp_path / "results",
        problem_flags=(),
        datagen_flags=(),
        trainer_flags=("--eval_bleu_sentences=0",),
        machine="m",
    )
    return augmentation_rows.Recipes(job, write(raw, tmp_path / "text"))


def test_rows_that_make_the_text_of_others_are_added_in_order():
    assert augmentation_rows.with_teachers(["distilled", "baseline"]) == [
        "baseline",
        "all_pairs",
        "distilled",
    ]


def test_back_translation_adds_text_of_its_seed_with_the_same_subwords(
    recipes,
):
    job = recipes.row_job("back_translation", 2)
    assert job.problem.corpora == "original:back_translated_seed2"
    vocabulary = recipes.row_job("baseline", 1).data / "vocab.model"
    assert job.problem.vocabulary == str(vocabulary)
    assert recipes.row_job("reverse", 2).data == vocabulary.parent
    assert recipes.row_job("reverse", 2).problem.reverse
    # The folder of the machine is not recorded.
    settings = row_files.row_settings(recipes.row("back_translation", 2), job)
    assert settings["problem_arguments"]["vocabulary"] == "vocab.model"


def test_rows_have_the_limits_of_their_problem(recipes):
    given = recipes.job.problem.arguments
    limits = {"max_length": 64, "filters": "unique:max_words=9"}
    limited = build_problem("parallel_text", given | limits)
    job = recipes._replace(job=recipes.job._replace(problem=limited))
    made = job.row_job("baseline", 1)
    assert limits.items() <= made.problem.arguments.items()
    assert ",filters=unique:max_words=9" in made.problem_flags[1]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("parallel_text", {"tags": "<A>"}, "got tags=<A>. Omit it"),
        ("multi30k_ende_lctok", {}, "text of multi30k_ende_lctok is tokenized"),
    ],
)
def test_other_problem_than_the_rows_can_have_is_refused(
    name, changes, message
):
    given = problem().arguments | changes if name == "parallel_text" else {}
    with pytest.raises(errors.UserError, match=message):
        augmentation_rows.require_supported(build_problem(name, given))


def test_ensemble_of_all_seeds_makes_one_corpus_for_small_models(recipes):
    for seed in 1, 2:
        job = recipes.row_job("ensemble_distilled", seed)
        assert job.problem.corpora == "ensemble_distilled_seed1_2"
    assert recipes.row("ensemble_distilled", 1).changes["hidden_size"] == 8
    assert recipes.row("all_pairs", 1).changes["hidden_size"] == 16
    assert recipes.row("bpe_dropout", 1).changes["bpe_dropout"] == 0.1


def result(row, seed, bleu):
    """Return a finished row as in its JSON file."""
    return {
        "row": row,
        "seed": seed,
        "problem": "parallel_text",
        "split": "test",
        "mixed_precision": "bfloat16",
        "machine": "a machine",
        "date": "2026-11-25",
        "minutes": 5.0,
        "converged": True,
        "hparams": {"hidden_size": 8, "train_steps": 9, "batch_tokens": 64},
        "figures": {
            "perplexity": 6.0,
            "scores": {"bleu": bleu},
            "greedy_bleu": bleu - 1,
            "signatures": {"bleu": "nrefs:1"},
            "parameters": 1_800_000,
            "pairs": 10_000,
        },
    }


def test_recipes_are_judged_beside_their_own_base():
    rows = {"baseline": 28.0, "reverse": 90.0, "back_translation": 31.0}
    rows |= {"bpe_dropout": 28.1, "student": 20.0, "distilled": 18.0}
    results = [
        result(row, seed, bleu + seed / 10)
        for row, bleu in rows.items()
        for seed in (1, 2)
    ]
    tests = {"back_translation": [{"p_value": 0.001}, {"p_value": 0.02}]}
    speeds = {"student": {"1": 812.3, "4": 402.2}}
    text = augmentation_table.lay_out(results, "bleu", tests, speeds)
    found = {
        line.split("|")[1].strip(): line for line in text.splitlines()[2:8]
    }
    gain = found["back_translation (base: baseline)"]
    assert "| 31.15 (31.10–31.20) | 30.15 (30.10–30.20) | +3.00 (" in gain
    assert "): better | 0.001, 0.020 | 1.80 | 5.0 |" in gain
    assert "+0.10 (" in found["bpe_dropout (base: baseline)"]
    assert "cannot tell" in found["bpe_dropout (base: baseline)"]
    assert "): worse |" in found["distilled (base: student)"]
    assert found["student"].endswith("|  |  | 1.80 | 5.0 | 402 | 812 |")
    summary = augmentation_table.summarize(results, "bleu", speeds)
    assert [row.get("verdict") for row in summary] == [
        None,
        None,
        "better",
        "cannot tell",
        None,
        "worse",
    ]
    assert augmentation_table.judge({"baseline": results[:1]}, "bleu") == {}


@pytest.mark.slow
def test_recipes_from_raw_text_to_the_table(recipes, forked, monkeypatch):
    called = []

    def run(self, command, *arguments, budget=None):
        called.append(command)
        done = forked(command, *arguments)
        assert done.returncode == 0, done.stderr

    monkeypatch.setattr(commands.Commands, "run", run)
    names = augmentation_rows.with_teachers(["back_translation"])
    augmentation_rows.flags.FLAGS.seed = [1]
    for _ in range(2):
        augmentation.train(recipes, names)
    assert called.count("trainer") == 2
    results = recipes.job.results_dir
    assert "back_translation" in (results / "table.md").read_text("utf-8")
    row = files.read_json(results / "back_translation-seed1.json")
    assert 30 < row["figures"]["pairs"] <= 40
    assert row["figures"]["greedy_bleu"] >= 0
