"""Search with the models of tests/toys; their exports and reports."""

import json
import re

import pytest

LINES = ["a b c d e", "", "f g", "h i j k l a b", "f g"]


def ok(result):
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def n_best(toy):
    """Return four outputs of each line, by the averaged checkpoint."""
    return toy.decode(LINES, "return_beams=true")


@pytest.mark.slow
def test_beam_search_returns_different_outputs(n_best):
    assert n_best[1] == [""] * 4  # of a blank line
    assert n_best[2] == n_best[4]
    for outputs in (n_best[0], n_best[2], n_best[3]):
        assert len(set(outputs)) == 4


@pytest.mark.slow
def test_decoder_and_evaluate_agree_in_greedy_search(toy):
    lines = (toy.folder / "raw" / "validation.xx").read_text().splitlines()
    (decoded,) = zip(*toy.decode(lines, "beam_size=1"), strict=True)
    flags = ("--split=validation", "--decode_hparams=beam_size=1")
    text = ok(toy.run("evaluate", *flags))
    assert "bleu" in json.loads(text.splitlines()[-1])
    folder = toy.output_dir / "translations"
    stored = (folder / "validation.txt").read_text().splitlines()
    assert tuple(stored) == decoded


@pytest.mark.slow
def test_samples_depend_only_on_seed_and_line(toy):
    flags = (
        "sampling_temp=1,beam_size=3,return_beams=true,min_length=40,"
        "sampling_seed=3"
    )
    samples = toy.decode(LINES, flags)
    assert samples[2] == samples[4]
    # By other processes, in another batch, and by an ensemble of the same.
    twice = f"--checkpoint_path={toy.averaged},{toy.averaged}"
    assert toy.decode(LINES[:3], flags, twice) == samples[:3]
    for line, outputs in zip(LINES, samples, strict=True):
        assert line == "" or len(set(outputs)) == 3
        for text in outputs if line else ():
            # A special subword is a name, and EOS is not shown.
            length = len(text.replace("<unk>", "?")) + 1
            if toy.name == "toy_convolution":
                assert length == 2 * (len(line) + 1)
            else:
                assert 40 <= length <= len(line) + 1 + 50


@pytest.mark.slow
def test_ensemble_continues_prefixes(toy, tmp_path):
    prefixes = ["C B", "", "L", "A", ""]
    for name, lines in (("in", LINES), ("begin", prefixes)):
        text = "".join(f"{line}\n" for line in lines)
        (tmp_path / name).write_text(text)
    outputs = toy.decode(
        LINES,
        "return_beams=true,beam_size=2",
        f"--checkpoint_path={toy.checkpoints[1]},{toy.checkpoints[2]}",
        f"--decode_from_file={tmp_path / 'in'}",
        f"--decode_prefix_file={tmp_path / 'begin'}",
    )
    for prefix, texts in zip(prefixes, outputs, strict=True):
        assert all(text.startswith(prefix) for text in texts)
    assert len(set(outputs[0])) == 2


@pytest.mark.slow
def test_an_ensemble_of_both_models_translates(train_toy):
    first, second = map(train_toy, ["toy_gru", "toy_convolution"])
    outputs = first.decode(
        LINES,
        "beam_size=2,min_length=40",
        f"--checkpoint_path={first.averaged},{second.averaged}",
    )
    lengths = [len(text.replace("<unk>", "?")) + 1 for (text,) in outputs]
    # The bound of the convolutional model.
    assert lengths == [len(line) * 2 + 2 if line else 1 for line in LINES]


@pytest.fixture(scope="module")
def exported(toy, tmp_path_factory):
    """Return the folder of an export."""
    folder = tmp_path_factory.mktemp("exported")
    ok(toy.run("exporter", f"--export_dir={folder}"))
    # A server starts cold: that is faster.
    (folder / "1" / "assets.extra" / "tf_serving_warmup_requests").unlink()
    return folder


@pytest.mark.slow
def test_export_translates_as_the_decoder(toy, exported, n_best, run):
    stdin = "".join(f"{line}\n" for line in LINES)
    text = ok(run("query", f"--export_dir={exported}", stdin=stdin))
    assert text.split("\n")[:-1] == [outputs[0] for outputs in n_best]


@pytest.mark.slow
def test_server_translates_as_the_decoder(toy, exported, n_best, serving):
    with serving(exported) as ask:
        body = {"instances": LINES, "signature_name": "n_best"}
        predictions = ask(":predict", body)["predictions"]
        metadata = ask("/metadata")["metadata"]["signature_def"]
    assert [item["outputs"] for item in predictions] == n_best
    for line, item in zip(LINES, predictions, strict=True):
        assert item["scores"] == sorted(item["scores"], reverse=True)
        assert (max(item["scores"]) < 0) == bool(line)
    has_attention = "attention" in metadata["signature_def"]
    assert has_attention == (toy.name == "toy_gru")


@pytest.mark.slow
def test_report_draws_the_attention_that_a_model_has(toy, parameters):
    ok(toy.run("report", "--sentence=a b c d e", "--pictures"))
    page = (toy.output_dir / "report" / "index.html").read_text("utf-8")
    words = re.sub(r"(<[^>]*>|\s)+", " ", page)
    assert f" Parameters {parameters:,} " in words
    reason = "No pictures: toy_convolution has no attention weights."
    has_attention = toy.name == "toy_gru"
    assert (reason in words) != has_attention
    # All heads of the only layer.
    assert page.count("data:image/png") == has_attention
    pictures = (toy.output_dir / "report" / "attention").rglob("*.png")
    assert len(list(pictures)) == has_attention
