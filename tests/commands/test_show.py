"""show: differences of sets, the schedule, and costs beside the paper's."""

import json
import re

import yaml
from forked import error, ok


def shown(run, *arguments):
    """Return the lines before the JSON, the settings, and the text after."""
    before, brace, rest = ok(run("show", *arguments)).partition("{\n")
    settings, end, after = rest.partition("\n}\n")
    return before.splitlines(), json.loads(brace + settings + end), after


def test_big_differs_from_base_as_in_the_paper(run):
    before, settings, after = shown(run, "--hparams_set=big")
    assert before[0] == "big differs from base:"
    assert "  num_heads: 8 -> 16" in before
    assert settings["hidden_size"] == 1024
    assert [line.split() for line in after.splitlines()] == [
        ["learning", "rate:", "noam"],
        ["update", "1", "1.235e-07"],
        ["update", "100", "1.235e-05"],
        ["update", "4,000", "4.941e-04"],
        ["update", "8,000", "3.494e-04"],
        ["update", "100,000", "9.882e-05"],
        ["peak", "4.941e-04"],
        ["ours", "the", "paper"],
        "parameters, V=37,000 214,171,648 213,000,000 Table 3: its counts fit "
        "V near 41,000, big's 36,000".split(),
        "more than base +151,126,016 +148,000,000 Table 3".split(),
        "training FLOPs 9.7e+18 2.3e+19 Table 2: time x GPUs x 9.5 TFLOPS; "
        "ours are counted".split(),
    ]


def test_repeated_settings_add_up_and_a_repeated_name_is_refused(run):
    flags = "--hparams_set=tiny", "--hparams=hidden_size=64,", "--hparams"
    text = ok(run("show", "--yaml", *flags, "num_heads=2"))
    settings = yaml.safe_load(text)["hparams"]
    assert (settings["hidden_size"], settings["num_heads"]) == (64, 2)
    message = error(run("show", *flags, "hidden_size=32"))
    assert "hidden_size is given twice in 'hidden_size=64," in message


def test_each_set_of_the_chain_differs_from_its_parent(run):
    before, settings, after = shown(
        run,
        "--hparams_set=transformer_base",
        "--hparams=num_hidden_layers=3",
        "--vocab_size=1000",
    )
    assert [line for line in before if line[0] != " "] == [
        "transformer_base with --hparams differs from transformer_base:",
        "transformer_base is transformer_base_v3.",
        "transformer_base_v3 differs from transformer_base_v2:",
        "transformer_base_v2 differs from transformer_base_v1:",
        "transformer_base_v1 differs from base:",
    ]
    assert before[1] == "  num_hidden_layers: 6 -> 3"
    assert settings["num_hidden_layers"] == 3
    assert "Table" not in after  # the paper has no figures of it
    # 3 layers of base on either side, and two final norms of 2 * 512.
    parameters = 1_000 * 512 + 3 * 7_350_272 + 2 * 2 * 512
    assert f"parameters, V=1,000 {parameters:,} " in " ".join(after.split())


def test_note_of_model_is_shown(run):
    """The paper's largest model is counted, although it fits no machine."""
    _, _, after = shown(run, "--hparams_set=moe", "--vocab_size=32000")
    lines = after.splitlines()
    assert lines[-4].split()[:3] == ["parameters,", "V=32,000", "8,666,884,608"]
    assert lines[-1].startswith("note: the balancing losses of experts are ")
    assert lines[-1].endswith("replicas times accumulated parts.")


def test_settings_are_printed_as_a_configuration_that_reads_back(run, tmp_path):
    flags = "--problem=number_words_ende", "--hparams_set=tiny", "--yaml"
    text = ok(run("show", *flags, "--hparams=num_heads=2"))
    assert yaml.safe_load(text)["hparams_set"] == "tiny"
    (tmp_path / "mine.yaml").write_text(text, "utf-8")
    again = ok(run("show", f"--config={tmp_path / 'mine.yaml'}", "--yaml"))
    assert again == text and "num_heads: 2" in text


def test_layers_have_the_shapes_of_the_paper(run):
    result = run("show", "--hparams_set=base", "--shapes")
    rows = [re.split(r"  +", line) for line in result.stdout.splitlines()]
    for row in (
        # Figure 1, and section 3.2.2: eight heads, each L x L.
        ["(the model)", "Transformer", "[B, T, V]", "63,045,632", "1"],
        ["embedding", "Embedding", "[B, T, 512]", f"{37_000 * 512:,}", "1"],
        [
            "decoder/layer_*/cross_attention/multihead_attention/compatibility",
            *("DotProduct", "[B, 8, T, L]", "0", "6"),
        ],
        [
            "encoder/layer_*/ffn/feed_forward/filter",
            *("Dense", "[B, L, 2048]", f"{512 * 2048 + 2048:,}", "6"),
        ],
    ):
        assert row in rows
