"""Configuration files: their flags, and those of the command line."""

import json

import pytest
import yaml
from absl import flags

from t2t_repro import errors
from t2t_repro.cli import config_file
from t2t_repro.io import fields


@pytest.fixture
def read(tmp_path):
    """Return a function: a file's name and text, arguments -> flags."""

    def read(name, text, *arguments):
        known = flags.FlagValues()
        flags.DEFINE_string("problem", None, "", flag_values=known)
        flags.DEFINE_string("hparams", "", "", flag_values=known)
        flags.DEFINE_string("hparams_set", None, "", flag_values=known)
        flags.DEFINE_enum("xla", "auto", ["on", "off", "auto"], "", known)
        flags.DEFINE_integer("steps", 5, "", flag_values=known, lower_bound=1)
        flags.DEFINE_alias("num_steps", "steps", known)
        flags.DEFINE_integer("train_steps", 5, "", flag_values=known)
        flags.DEFINE_float("rate", 1.0, "", flag_values=known)
        flags.DEFINE_bool("verify", False, "", flag_values=known)
        flags.DEFINE_multi_string("inputs", [], "", flag_values=known)
        flags.DEFINE_string("random_seed", None, "", flag_values=known)
        flags.DEFINE_string("data_dir", "home", "", flag_values=known)
        known(["command", *arguments])
        (tmp_path / name).write_text(text)
        config_file.apply(tmp_path / name, known)
        return known

    return read


def test_values_have_the_types_of_their_flags(read):
    known = read(
        "run.yaml",
        "problem: 'a,b'\nxla: on\nsteps: 300\nrate: 1e-4\nverify: yes\n"
        "inputs: [one, 'two, three']\n"
        "hparams: {rate: 1e-4, name: 'x, y', sizes: [1, 2], loud: true}\n",
    )
    assert (known.problem, known.xla, known.steps) == ("a,b", "on", 300)
    assert (known.rate, known.verify) == (1e-4, True)
    assert known.inputs == ["one", "two, three"]
    assert fields.items(known.hparams) == {
        "rate": "1e-4",
        "name": "x, y",
        "sizes": "1,2",
        "loud": "true",
    }


def test_command_line_overrides_file(read):
    """A value that is null is not given."""
    hparams = {"a": 1, "b": True, "c": None, "e": "null"}
    values = {"problem": None, "steps": 300, "hparams": hparams}
    given = "--steps=7", "--hparams=a=2,d=3"
    known = read("mine.json", json.dumps(values), *given)
    assert (known.problem, known.steps) == (None, 7)
    assert known.hparams == "a=2,b=true,e=null,d=3"


RUN = {
    "problem": "numbers",
    "problem_arguments": {"size": 3},  # no flag of this command
    "hparams": {"a": 1.5e-9},
    "hparams_set": "tiny",
    "random_seed": 4,
    "data_dir": "data",
    "options": {"train_steps": 9, "xla": "off"},
    "versions": {"python": "3"},
}


@pytest.mark.parametrize(
    ("manifest_sha256", "data_dir"), [("ab", "data"), ("", "home")]
)
def test_run_is_repeated_with_its_data_if_any(read, manifest_sha256, data_dir):
    run = RUN | {"manifest_sha256": manifest_sha256}
    known = read("run.json", json.dumps(run))
    assert (known.problem, known.hparams) == ("numbers", "a=1.5e-09")
    assert (known.random_seed, known.train_steps, known.xla) == ("4", 9, "off")
    assert known.data_dir == data_dir


def test_vocabulary_of_a_run_that_was_moved_is_beside_it(tmp_path):
    arguments = {"vocabulary": str(tmp_path / "before" / "vocab.model")}
    file = tmp_path / "run.json"
    assert config_file._with_vocabulary(file, arguments) == arguments
    (tmp_path / "vocab.model").touch()
    found = config_file._with_vocabulary(file, arguments)
    assert found == {"vocabulary": str(tmp_path / "vocab.model")}
    assert config_file._with_vocabulary(file, {}) == {}


def test_other_set_beside_all_hparams_of_a_run_is_an_error(read):
    run = json.dumps(RUN | {"manifest_sha256": "ab"})
    assert read("run.json", run, "--hparams_set=tiny").hparams_set == "tiny"
    with pytest.raises(errors.UserError, match="got --hparams_set=big, of"):
        read("run.json", run, "--hparams_set=big")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"steps": 300, "steps": 3}', "'steps' is given twice"),
        ('{"num_steps": 300, "steps": 3}', "--steps twice"),
        ("problm: x", "'problm', which is not a flag .*Did you mean problem?"),
        ("steps: 0", "run.yaml: .*steps=0"),
        ("xla: true", "run.yaml: .*xla=true"),
        ("verify: maybe", "verify=maybe: expected true or false"),
        ("hparams: a=1", "hparams must be a mapping .* got 'a=1'"),
        ("problem: {a: 1}", "Expected one value"),
        ("steps: 1\nsteps: 2", "'steps' is given twice"),
        ("- steps", "lines `flag: value`"),
        ("config: other.yaml", "names another file, by `config`"),
        ("a: [", "Cannot read"),
        ("problem: {{ mine }}", "Cannot read(?s:.*)unhashable"),
    ],
)
def test_bad_file_is_explained(read, text, message):
    name = "mine.json" if text.startswith("{") else "run.yaml"
    with pytest.raises(errors.UserError, match=message):
        read(name, text)


@pytest.mark.parametrize("name", ["mine.json", "run.yaml"])
def test_missing_file_is_named(tmp_path, name):
    with pytest.raises(errors.UserError, match=f"Cannot read .*{name}"):
        config_file.apply(tmp_path / name, flags.FlagValues())


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_written_values_are_read(read, suffix):
    """YAML has no surrogates and no tabs, which JSON may have."""
    hparams = {"name": "x,y", "loud": "null"}
    values = {"problem": "ä: # 🐶", "rate": 1e-9, "hparams": hparams}
    text = json.dumps(values, indent="\t")
    if suffix == "yaml":
        text = config_file.dump(values)
        assert yaml.safe_load(text) == values
    known = read(f"mine.{suffix}", text)
    assert (known.problem, known.rate) == ("ä: # 🐶", 1e-9)
    assert fields.items(known.hparams) == hparams


def test_other_name_of_a_flag_is_the_flag(read):
    assert read("mine.json", '{"num_steps": 300}').steps == 300
    assert read("mine.json", '{"num_steps": 300}', "--steps=7").steps == 7
