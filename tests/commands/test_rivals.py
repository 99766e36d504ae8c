"""The paper's rivals, from training to a server: one test for each model."""

import functools

import pytest
from forked import ROOT, ok
from made_up_words import write_raw

LINES = ["a b c d e", "", "f g", "h i j k l a b"]
TEXT = "".join(f"{line}\n" for line in LINES)
# hparams sets, of the model of tests/toys and of ours, each with settings of
# its own.
RIVALS = {
    "toy_gru": "attention_size=8",
    "gnmt_tiny": "num_decoder_layers=2",
    "deep_att_tiny": "num_decoder_layers=2",
    "moe_tiny": "num_experts=4,expert_filter_size=16",
    "transformer_moe_tiny": "filter_size=32,num_heads=2,num_hidden_layers=2,"
    "num_experts=4,expert_filter_size=16",
    "convs2s_tiny": "encoder_convolutions=16x3,decoder_convolutions=16x3",
    "bytenet_tiny": "num_block_repeat=1,max_dilation=4",
    "neural_gpu_tiny": "encoder_steps=2",
}
SETTINGS = RIVALS | {"tiny": "filter_size=32,num_heads=2,num_hidden_layers=1"}
SHARED = (
    "hidden_size=16,batch_tokens=512,learning_rate_warmup_steps=20,"
    "learning_rate_constant=0.1"
)
# Models without attention over the source have no such signature.
INATTENTIVE = "bytenet_tiny", "neural_gpu_tiny"


class Toy:
    """One model with its run, and commands on it."""

    def __init__(self, name, folder, run):
        self.command, self.output_dir = run, folder / name
        self.averaged = self.output_dir / "averaged" / "ckpt-60"
        self.printed = self.run(
            "trainer",
            "--problem=parallel_text",
            # A subword is a character, so that a text tells its length.
            "--problem_args=name=made_up,languages=xx-yy,vocab_size=28,"
            "vocabulary_type=characters",
            f"--raw_dir={folder / 'raw'}",
            f"--data_dir={folder / 'data'}",
            f"--hparams_set={name}",
            f"--hparams={SHARED},{SETTINGS[name]}",
            "--train_steps=60",
            "--save_checkpoints_steps=20",
            "--eval_bleu_sentences=4",
        )
        self.run("avg_checkpoints", "--num_last_checkpoints=2")

    def run(self, name, *flags, **settings):
        out = f"--output_dir={self.output_dir}"
        usr = f"--usr_dir={ROOT / 'tests' / 'toys'}"
        return ok(self.command(name, usr, out, *flags, **settings))

    def n_best(self, *flags):
        """Return the outputs of each line."""
        search = "--decode_hparams=return_beams=true,extra_length=5"
        text = self.run("decoder", search, *flags, stdin=TEXT)
        outputs = [line.split("\t") for line in text.split("\n")[:-1]]
        assert len(outputs) == len(LINES)
        return outputs


@pytest.fixture(scope="module")
def train_toy(run, tmp_path_factory):
    """Return a function of a model's name that returns a trained Toy."""
    folder = tmp_path_factory.mktemp("toys")
    write_raw(folder / "raw", train=400, validation=8, test=8)
    return functools.cache(lambda name: Toy(name, folder, run))


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_rival_is_trained_searched_exported_and_served(
    name, train_toy, run, tmp_path
):
    toy, transformer = train_toy(name), train_toy("tiny")

    # n-best lists, and an ensemble with a Transformer.
    n_best = toy.n_best()
    assert n_best[1] == [""] * 4  # of a blank line
    assert all(len(set(n_best[i])) == 4 for i in (0, 2, 3))
    both = f"--checkpoint_path={toy.averaged},{transformer.averaged}"
    ensemble = toy.n_best(both)
    assert ensemble not in (n_best, transformer.n_best())

    # The export and its server.
    export = f"--export_dir={tmp_path / 'export'}"
    toy.run("exporter", export, "--decode_hparams=extra_length=5")
    queried = ok(run("query", export, stdin=TEXT))
    assert queried.split("\n")[:-1] == [texts[0] for texts in n_best]
    with run.serve(tmp_path / "export") as server:
        body = {"instances": LINES, "signature_name": "n_best"}
        predictions = server.ask(":predict", body)["predictions"]
        metadata = server.ask("/metadata")["metadata"]["signature_def"]
    assert [item["outputs"] for item in predictions] == n_best
    has_attention = "attention" in metadata["signature_def"]
    assert has_attention == (name not in INATTENTIVE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy_gru", "bytenet_tiny"])
def test_model_has_bucketed_batches_and_report_of_attention(name, train_toy):
    toy = train_toy(name)
    assert "bucketed shapes of rows x length" in toy.printed
    toy.run("report", "--sentence=a b c d e", "--pictures")
    page = (toy.output_dir / "report" / "index.html").read_text("utf-8")
    reason = "No pictures: bytenet has no attention weights."
    assert (reason in page) == (name in INATTENTIVE)
    # All heads of the only layer.
    assert page.count("data:image/png") == (name not in INATTENTIVE)
    pictures = (toy.output_dir / "report" / "attention").rglob("*.png")
    assert len(list(pictures)) == (name not in INATTENTIVE)
