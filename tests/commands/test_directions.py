"""One model of several directions, from text to a server."""

import json
import random
import urllib.error

import pytest
from forked import ok

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
    folder.mkdir()
    numbers = [str(n) for n in range(10_000)]
    choices = random.Random(0)
    choices.shuffle(numbers)
    for split, size in SIZES.items():
        chosen, numbers = numbers[:size], numbers[size:]
        for language, text in WORDS.items():
            words = text.split()
            lines = (" ".join(words[int(d)] for d in n) for n in chosen)
            path = folder / f"{split}.{language}"
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


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


@pytest.fixture(scope="module")
def scores(run, digits):
    """Return the scores of the test split."""
    out = f"--output_dir={digits / 'run'}"
    text = ok(run("evaluate", out, "--bootstrap_samples=1"))
    return json.loads(text.splitlines()[-1])


@pytest.mark.slow
def test_model_learns_each_direction(run, digits, scores):
    by_direction = scores["directions"]
    assert list(by_direction) == TRAINED
    exact = {name: row["exact_match"] for name, row in by_direction.items()}
    assert min(exact.values()) > 20, exact
    assert scores["exact_match"] == pytest.approx(sum(exact.values()) / 5)
    (validation,) = json.loads((digits / "run/validation.json").read_text())
    assert list(validation["bleu_directions"]) == TRAINED

    out = f"--output_dir={digits / 'run'}"
    one = ("--source_language=de", "--language=en", "--bootstrap_samples=1")
    text = ok(run("evaluate", out, *one))
    assert json.loads(text.splitlines()[-1]) == by_direction["de-en"] | {
        "signature": scores["signature"].rpartition("|")[0]
    }
    unseen = ("--split=zero_shot", "--bootstrap_samples=1")
    text = ok(run("evaluate", out, *unseen))
    assert "directions" not in json.loads(text.splitlines()[-1])
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
    refused = run("decoder", out, f"--decode_from_file={digits / 'in'}")
    assert refused.returncode == 1
    assert (
        "Error: Line 1: The language of the target must be one"
        in refused.stderr
    )
    assert "got ''. Begin the line with a tag such as <2de>" in refused.stderr
    refused = run("decoder", out, "--target_language=it", stdin=text)
    assert "no direction with the languages it" in refused.stderr
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
    exported = t2t_repro.load(export_dir)
    found = exported.translate(lines.splitlines(), target_language="de")
    assert [translation.text for translation in found] == german.splitlines()
    with run.serve(export_dir) as server:
        tagged = [f"<2de> {line}" for line in lines.splitlines()]
        answer = server.ask(":predict", {"inputs": {"inputs": tagged}})
        assert answer["outputs"]["outputs"] == german.splitlines()
        row = {"inputs": "seven", "target_language": "de"}
        directed = {"signature_name": "directed", "instances": [row]}
        (answer,) = server.ask(":predict", directed)["predictions"]
        assert answer["outputs"] == german.splitlines()[1]
        with pytest.raises(urllib.error.HTTPError, match="400") as raised:
            server.ask(":predict", {"instances": ["seven"]})
        message = json.loads(raised.value.read())["error"]
        assert "inputs[0]: The language of the target must be one" in message
