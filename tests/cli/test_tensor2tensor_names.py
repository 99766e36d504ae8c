"""Command lines and names of tensor2tensor, explained."""

import re
import shlex

import pytest

from t2t_repro import errors, registry
from t2t_repro.cli import command_line
from t2t_repro.problem import build_problem
from t2t_repro.training import schedules

TRAINER = {"problem", "hparams_set", "hparams", "data_dir", "output_dir"}


@pytest.mark.parametrize(
    ("line", "known", "reasons", "expected"),
    [
        (
            "trainer --model=transformer --problem=translate_ende_wmt32k "
            "--schedule=train_and_evaluate --worker_gpu=8 --generate_data "
            "--tmp_dir=/tmp/t2t --hparams_set=transformer_base "
            "--hparams='batch_size=4096, num_heads=4' --output_dir='my run'",
            TRAINER,
            ["names the model", "visible GPUs", "always generated", "8 GPUs"],
            "t2t trainer --problem=wmt14_ende --hparams_set=transformer_base "
            "--hparams=batch_tokens=32768,batch_unit=slots,num_heads=4 "
            "--output_dir='my run'",
        ),
        (  # values after spaces; a flag that nobody has
            "trainer --model transformer --problem translate_enfr_wmt32k_rev "
            "--modle=x --notfdbg --eval_freq 5 --hparams=learning_rate=0.1",
            TRAINER,
            ["--modle=x: there is no such flag", "for noam", "traces steps"],
            "t2t trainer --problem=wmt14_enfr_rev --eval_every=5",
        ),
        (
            "avg_all --model_dir=run --n=8 --output_dir=avg",
            (),
            ["--n=8: here --num_last_checkpoints", "the run stores"],
            "t2t avg_checkpoints --output_dir=run --num_last_checkpoints=8",
        ),
        (
            "eval --problem=translate_ende_wmt32k --data_dir=d --model=x",
            (),
            ["the paper's data", "names the model"],
            "t2t evaluate --problem=wmt14_ende --data_dir=d",
        ),
        (
            "bleu --translation=out --reference=ref",
            (),
            ["--reference=ref: here --references"],
            "t2t evaluate --language=LANGUAGE --translations=out "
            "--references=ref",
        ),
        (
            "query_server --server=host:9000 --servable_name=m --data_dir=d",
            (),
            ["run and export are complete"],
            "t2t query --server=host:9000 --servable_name=m",
        ),
        (
            "translate_all --model_dir=run --source=in --wait_minutes=3 "
            "--alpha=1.0 --beam_size=8",
            (),
            ["do not wait"],
            "t2t evaluate --all_checkpoints --output_dir=run "
            "--decode_hparams=alpha=1.0 --decode_hparams=beam_size=8",
        ),
    ],
)
def test_command_line_is_explained_once_with_the_line_to_type(
    line, known, reasons, expected
):
    command, *arguments = shlex.split(line)
    text = command_line.explain_tensor2tensor(command, arguments, known)
    for reason in reasons:
        assert reason in text
    typed = text.partition("Type instead:")[2].replace("\\\n", "")
    assert shlex.split(typed) == shlex.split(expected)


@pytest.mark.parametrize(
    "line", ["--problm=x", "--num_heads=4", "--noverify", "--output_dir a"]
)
def test_other_command_lines_are_not_explained(line):
    known = {*TRAINER, "verify"}
    explain = command_line.explain_tensor2tensor
    assert explain("trainer", line.split(), known) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("translate_ende_wmt32k", "'wmt14_ende'?"),
        ("translate_ende_wmt_bpe32k", "'wmt14_ende'?"),
        ("translate_enfr_wmt32k_packed_rev", "'wmt14_enfr_rev'?"),
        ("translate_enzh_wmt32k", "'tfds_translate' or 'parallel_text'?"),
        ("parsing_english_ptb16k", "'wsj_parsing'?"),
    ],
)
def test_problem_of_tensor2tensor_suggests_ours(name, expected):
    with pytest.raises(errors.UserError, match=re.escape(expected)):
        build_problem(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("learning_rate_schedule=exp_decay", "mean exponential_decay?"),
        ("learning_rate_schedule=constant*legacy", "in place of tensor2tensor"),
        ("batch_size=3", "mean batch_tokens? Note: batch_tokens counts"),
    ],
)
def test_hparam_of_tensor2tensor_suggests_ours(name, expected):
    with pytest.raises(errors.UserError, match=re.escape(expected)):
        schedules.build(registry.build_hparams("base").override(name))
