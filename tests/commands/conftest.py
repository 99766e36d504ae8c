"""Fixtures: commands in forks of a process that has TensorFlow, and runs."""

import functools

import pytest
from forked import ROOT, ok
from made_up_words import problem_flags, write_raw

# Smaller than "tiny": these tests are not about the model.
HPARAMS = (
    "hidden_size=32,filter_size=64,num_heads=2,num_hidden_layers=1,"
    "batch_tokens=512,shared_embedding_and_softmax_weights=false,"
    "learning_rate_warmup_steps=50,learning_rate_constant=0.07"
)
USR_DIR = ROOT / "tests" / "toys"
# hparams sets, of the model of tests/toys and of ours, each with settings of
# its own.
TOYS = {
    "toy_gru": "attention_size=8",
    "tiny": "filter_size=32,num_heads=2,num_hidden_layers=1",
    "gnmt_tiny": "num_decoder_layers=2",
    "deep_att_tiny": "num_decoder_layers=2",
    "moe_tiny": "num_experts=4,expert_filter_size=16",
    "transformer_moe_tiny": "filter_size=32,num_heads=2,num_hidden_layers=2,"
    "num_experts=4,expert_filter_size=16",
    "convs2s_tiny": "encoder_convolutions=16x3,decoder_convolutions=16x3",
    "bytenet_tiny": "num_block_repeat=1,max_dilation=4",
    "neural_gpu_tiny": "encoder_steps=2",
}
TOY_HPARAMS = (
    "hidden_size=16,batch_tokens=512,learning_rate_warmup_steps=20,"
    "learning_rate_constant=0.1"
)


@pytest.fixture(scope="session")
def run(forked):
    """Return a function that runs a command, in a fork: see forked.py."""
    return forked


@pytest.fixture(scope="session")
def trained(run, tmp_path_factory):
    """Return a folder with data/ and run/ of training on made-up words.

    Its vocabularies are separate; that of tests/fixtures/run is shared.
    """
    folder = tmp_path_factory.mktemp("trained")
    write_raw(folder / "raw")
    ok(
        run(
            "trainer",
            *problem_flags(folder),
            "--hparams_set=tiny",
            f"--hparams={HPARAMS}",
            f"--output_dir={folder / 'run'}",
            "--train_steps=60",
            "--save_checkpoints_steps=20",
            "--eval_bleu_sentences=8",
        )
    )
    return folder


class Toy:
    """One model with its run, and commands on it."""

    def __init__(self, name, folder, run):
        self.name, self.command = name, run
        self.usr = f"--usr_dir={USR_DIR}"
        self.output_dir = folder / name
        self.averaged = self.output_dir / "averaged" / "ckpt-60"
        self.trained = self.run(
            "trainer",
            "--problem=parallel_text",
            # A subword is a character, so that a text tells its length.
            "--problem_args=name=made_up,languages=xx-yy,vocab_size=28,"
            "vocabulary_type=characters",
            f"--raw_dir={folder / 'raw'}",
            f"--data_dir={folder / 'data'}",
            f"--hparams_set={name}",
            f"--hparams={TOY_HPARAMS},{TOYS[name]}",
            "--train_steps=60",
            "--save_checkpoints_steps=20",
            "--eval_bleu_sentences=4",
        )
        ok(self.trained)
        ok(self.run("avg_checkpoints", "--num_last_checkpoints=2"))

    def run(self, name, *flags, **settings):
        out = f"--output_dir={self.output_dir}"
        return self.command(name, self.usr, out, *flags, **settings)

    def decode(self, lines, hparams, *flags):
        stdin = "".join(f"{line}\n" for line in lines)
        flags = (f"--decode_hparams={hparams}", *flags)
        text = ok(self.run("decoder", *flags, stdin=stdin))
        outputs = [line.split("\t") for line in text.split("\n")[:-1]]
        assert len(outputs) == len(lines)
        return outputs


@pytest.fixture(scope="session")
def train_toy(run, tmp_path_factory):
    """Return a function of a model's name that returns a trained Toy."""
    folder = tmp_path_factory.mktemp("toys")
    write_raw(folder / "raw", train=400, validation=8, test=8)
    return functools.cache(lambda name: Toy(name, folder, run))
