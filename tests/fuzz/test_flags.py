"""Random values of the flags of every command: accepted, or explained."""

import contextlib
import importlib
import math
import sys

import hypothesis
import pytest
from absl import flags
from absl.testing import flagsaver
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro import __main__ as t2t
from t2t_repro import errors
from t2t_repro.cli import common_flags

VALUES = st.one_of(
    st.text(st.characters(exclude_characters="\0"), max_size=20),
    st.text(alphabet="0123456789-.,=e_~/ \udcff", max_size=9),
    st.sampled_from(
        "nan inf -1 0 1 1e400 true off auto .. / . , ,, ~ a=b,a=b".split(" ")
        + ["", "~nobody_of_this_name/x", "x" * 300, "9" * 30, "\udcff"]
        + ["number_words_ende", "number_words_ende_rev", "tiny", "base"]
        + ["max_length=9", "beam_size=0", "hidden_size=9", "alpha=inf"]
    ),
)


@pytest.fixture(scope="module", params=sorted(t2t.COMMANDS))
def names(request):
    """Yield the names of the flags of a command and of common_flags.

    Modules of flags are removed in the end: the next command defines them
    again.
    """
    before = set(flags.FLAGS)
    importlib.import_module(f"t2t_repro.{request.param}")
    flags.FLAGS.mark_as_parsed()
    modules = flags.FLAGS.flags_by_module_dict().items()
    yield sorted(
        flag.name
        for module, found in modules
        if module.startswith("t2t_repro")
        for flag in found
    )
    added = set(flags.FLAGS) - before
    for module, found in modules:
        if added.intersection(flag.name for flag in found):
            del sys.modules[module]
            package, _, last = module.rpartition(".")
            delattr(sys.modules[package], last)
    for flag in added:
        delattr(flags.FLAGS, flag)


def explained(function, *arguments):
    """Return the function's result; None: a UserError."""
    with contextlib.suppress(errors.UserError):
        return function(*arguments)


# The examples of each command.
@hypothesis.settings(
    max_examples=max(20, hypothesis.settings().max_examples // 5)
)
@given(st.data())
def test_any_flag_value_is_accepted_or_explained(names, data):
    chosen = data.draw(st.lists(st.sampled_from(names), max_size=4))
    argv = ["t2t"] + [f"--{name}={data.draw(VALUES)}" for name in chosen]
    with flagsaver.flagsaver():
        try:
            flags.FLAGS(argv)
        except flags.Error as error:
            # An alias is named by its flag.
            assert any(f"--{name}" in str(error) for name in names)
            return
        for name in names:
            value = flags.FLAGS[name].value
            assert not isinstance(value, float) or math.isfinite(value)
        found = explained(common_flags.problem)
        explained(common_flags.hparams)
        explained(common_flags.data_dir)
        explained(common_flags.output_dir)
        explained(common_flags.expected_settings)
        if found and "decode_hparams" in flags.FLAGS:
            explained(common_flags.decode_hparams, found)
        for name in ("sentence", "inputs"):
            if name in flags.FLAGS:
                explained(common_flags.require_utf8, name)


def test_text_flag_that_is_not_utf8_is_refused():
    name = "texts_of_a_test"
    flags.DEFINE_multi_string(name, ["é 🚀", "\udcff"], "Texts.")
    flags.FLAGS.mark_as_parsed()
    with pytest.raises(errors.UserError, match=r"is not UTF-8: '\\udcff'"):
        common_flags.require_utf8(name)
    flags.FLAGS[name].value = "\udcff"  # as of a flag that is given once
    with pytest.raises(errors.UserError, match=r"is not UTF-8: '\\udcff'"):
        common_flags.require_utf8(name)
    delattr(flags.FLAGS, name)
