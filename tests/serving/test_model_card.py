"""The model card in Markdown, parsed as the Hugging Face Hub parses it."""

import yaml

from t2t_repro.problem import build_problem
from t2t_repro.serving import exporting

CARD = {
    "problem": "multi30k_ende_rev",
    "problem_arguments": {"vocab_size": 500, "vocabulary": ""},
    "hparams_set": "tiny",
    "hparams": {"model": "gated", "train_steps": 3_000, "batch_tokens": 4_096},
    "options": {"batching": "packed"},
    "random_seed": 7,
    "versions": {"t2t_repro": "0.1.0"},
    "hardware": ["1 replica on one CPU"],
    "run": "mine",
    "checkpoints": ["averaged/ckpt-60"],
    "decode_hparams": {"beam_size": 4},
    "scores": {
        "test": {
            "bleu": 38.925,
            "exact_match": 6.5,
            "signatures": {"bleu": "nrefs:1|case:mixed", "exact_match": "x"},
        },
        "wmt14/full": {"bleu": 12.0},  # of a version without signatures
    },
}


def parts(card, format="saved_model", **data):
    """Return the header, parsed, and the text of a card with other data."""
    data = build_problem(card["problem"]).card | data
    text = exporting.card_markdown(card | {"data": data}, format)
    _, header, body = text.split("---\n", 2)
    return yaml.safe_load(header), body


def test_header_has_languages_in_the_direction_and_results():
    header, _ = parts(CARD)
    (result,) = header.pop("model-index")[0]["results"]
    assert header == {
        "language": ["de", "en"],
        "license": "unknown",
        "pipeline_tag": "translation",
        "tags": ["translation", "gated", "tensorflow"],
    }
    (metric,) = result["metrics"]
    assert metric["type"] == "bleu" and metric["value"] in (38.92, 38.93)
    assert metric["name"] == "bleu (nrefs:1|case:mixed)"
    assert result["dataset"]["name"] == "multi30k_ende_rev test"


def test_header_has_all_languages_and_the_task():
    directions = {"name": "x", "directions": "en-de:fr-de"}
    many = build_problem("parallel_text_many", directions).card
    header, _ = parts(CARD, **many)
    assert header["language"] == ["de", "en", "fr"]
    assert header["pipeline_tag"] == "translation"
    header, _ = parts(CARD, task="summarization")
    assert header["pipeline_tag"] == header["tags"][0] == "summarization"
    (result,) = header["model-index"][0]["results"]
    assert result["task"]["type"] == "summarization"


def test_header_has_only_names_of_languages_that_the_hub_admits():
    header, _ = parts(
        CARD,
        source_language="no",  # false to YAML, without quotes
        target_language="zh_Hans",
        target_languages=["Zielsprache", "pt_BR", "x: [1"],
    )
    assert header["language"] == ["no", "zh", "pt"]
    assert header["language_bcp47"] == ["zh-Hans", "pt-BR"]


ORIGIN = {
    "system": "huggingface",
    "name": "opus-mt-de-en",
    "license": "apache-2.0",
    "revision": "c0ffee",
    "sha256": {"config.json": "feed"},
}


def test_card_of_an_import_says_where_the_model_is_from():
    card = CARD | {"imported_from": ORIGIN, "checkpoints": ["ckpt-0"]}
    header, text = parts(card)
    assert header["license"] == "apache-2.0"
    assert header["base_model"] == "opus-mt-de-en"
    assert "# opus-mt-de-en: de to en\n" in text
    assert "imported from Hugging Face with t2t_repro 0.1.0.\n" in text
    assert "| revision | c0ffee |" in text
    assert "| files, sha256 | `config.json` feed |" in text
    assert "is that of the original model. Its training" in text
    assert "trained with" not in text and "## Data" not in text


def test_card_of_an_import_that_was_trained_on_says_both():
    origin = ORIGIN | {"license": ""}
    header, text = parts(CARD | {"imported_from": origin})
    assert header["license"] == "unknown"
    assert "which its files do not name: write it into the header" in text
    assert "t2t_repro 0.1.0, then trained with t2t_repro 0.1.0." in text
    assert "## Origin" in text and "## Data" in text and "## Training" in text


def test_title_has_all_target_languages():
    data = build_problem("number_words_many", "directions=en-de:en-fr").card
    _, text = parts(CARD, **data)
    assert "# multi30k_ende_rev: en to de, fr\n" in text


def test_text_names_data_licence_scores_and_settings():
    _, text = parts(CARD)
    assert "# multi30k_ende_rev: de to en\n" in text
    assert "| page | https://github.com/multi30k/dataset |" in text
    assert "| licence | not stated |" in text and "W16-3210" in text
    assert "| test | exact_match | 6.50 | `x` |" in text
    assert "`nrefs:1 case:mixed`" in text  # no bar within a cell
    assert "| steps | 60 of 4,096 tokens |" in text
    assert "| differences from it | model gated" in text
    assert "| options of the trainer | batching packed |" in text
    assert "`multi30k_ende_rev`, vocab_size 500 |" in text
    assert "t2t_repro.load" in text
    assert "CTranslate2" in parts(CARD, "ctranslate2")[1]


def test_run_without_scores():
    header, text = parts(CARD | {"scores": {}})
    assert "model-index" not in header and "has not been scored" in text
