"""One model of several directions, from text to a server."""

import json
import random

import pytest
import raw_text
from forked import error, ok

import t2t_repro

WORDS = {
    "en": "zero one two three four five six seven eight nine",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf",
}
TRAINED = ["en-de", "de-en", "en-fr", "fr-en", "de-fr"]
SIZES = {"train": 1_200, "validation": 30, "test": 40}
HPARAMS = (
    "hidden_size=64,filter_size=128,num_heads=4,num_hidden_layers=1,"
    "batch_tokens=1024,learning_rate_warmup_steps=50,"
    "learning_rate_constant=0.1"
)


def write_digits(folder):
    """Write different numbers of one to four digits, digit by digit."""
    numbers = [str(n) for n in range(10_000)]
    random.Random(0).shuffle(numbers)
    names = [text.split() for text in WORDS.values()]

    def spell(number):
        return [" ".join(words[int(d)] for d in number) for words in names]

    splits = {
        split: [spell(numbers.pop()) for _ in range(size)]
        for split, size in SIZES.items()
    }
    raw_text.write(folder, splits, WORDS)


@pytest.fixture(scope="module")
def digits(run, tmp_path_factory):
    """Return a folder with raw/, data/ and run/."""
    folder = tmp_path_factory.mktemp("digits")
    write_digits(folder / "raw")
    ok(
        run(
            "trainer",
            "--problem=parallel_text_many",
            f"--problem_args=name=digits,directions={':'.join(TRAINED)},"
            "zero_shot=fr-de,vocab_size=320",
            f"--raw_dir={folder / 'raw'}",
            f"--data_dir={folder / 'data'}",
            f"--output_dir={folder / 'run'}",
            "--hparams_set=tiny",
            f"--hparams={HPARAMS}",
            "--train_steps=240",
            "--save_checkpoints_steps=120",
            "--eval_every=240",
            "--eval_bleu_sentences=50",
        )
    )
    return folder


@pytest.mark.slow
def test_model_learns_each_direction(run, digits):
    def evaluate(*flags):
        out = f"--output_dir={digits / 'run'}"
        text = ok(run("evaluate", out, "--bootstrap_samples=1", *flags))
        return json.loads(text.splitlines()[-1])

    scores = evaluate()
    by_direction = scores["directions"]
    assert list(by_direction) == TRAINED
    exact = {name: row["exact_match"] for name, row in by_direction.items()}
    assert min(exact.values()) > 20, exact
    (validation,) = json.loads((digits / "run/validation.json").read_text())
    assert list(validation["bleu_directions"]) == TRAINED
    one = evaluate("--source_language=de", "--language=en")
    signature = scores["signature"].rpartition("|")[0]
    assert one == by_direction["de-en"] | {"signature": signature}
    assert "directions" not in evaluate("--split=zero_shot")
    stored = sorted(path.stem for path in (digits / "run").glob("*/*.txt"))
    assert stored == ["test", "test.de-en", "zero_shot"]


@pytest.mark.slow
def test_decoder_takes_a_language_or_tags(run, digits):
    out = f"--output_dir={digits / 'run'}"
    text = "one two\n\n<2fr> one two\n"
    german, blank, french = ok(
        run("decoder", out, "--target_language=de", stdin=text)
    ).splitlines()
    assert blank == ""
    assert set(german.split()) <= set(WORDS["de"].split())
    assert set(french.split()) <= set(WORDS["fr"].split())
    model = t2t_repro.load(digits / "run")
    found = model.translate(["one two"], target_language="de")
    assert found[0].text == german
    (digits / "in").write_text(text)
    refused = error(run("decoder", out, f"--decode_from_file={digits / 'in'}"))
    assert refused.startswith("Line 1: The language of the target must be one")
    refused = error(run("decoder", out, "--target_language=it", stdin=text))
    assert "no direction with the languages it" in refused
    chat = run("decoder", out, "--decode_interactive", stdin=text)
    tag_is_missing, _, translation = ok(chat).splitlines()
    assert "language of the target" in tag_is_missing
    assert translation.endswith(french)


@pytest.mark.slow
def test_export_and_server_translate_into_the_language(run, digits):
    export_dir = digits / "run" / "export"
    export = f"--export_dir={export_dir}"
    out = f"--output_dir={digits / 'run'}"
    ok(run("exporter", out))
    lines = "one two three\nseven\n"
    german = ok(run("decoder", out, "--target_language=de", stdin=lines))
    query = run("query", export, "--target_language=de", stdin=lines)
    assert ok(query) == german
    with run.serve(export_dir) as server:
        tagged = [f"<2de> {line}" for line in lines.splitlines()]
        answer = server.ask(":predict", {"inputs": {"inputs": tagged}})
        assert answer["outputs"]["outputs"] == german.splitlines()
        row = {"inputs": "seven", "target_language": "de"}
        directed = {"signature_name": "directed", "instances": [row]}
        (answer,) = server.ask(":predict", directed)["predictions"]
        assert answer["outputs"] == german.splitlines()[1]
