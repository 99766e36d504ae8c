"""Mistakes of users, and the messages that explain them."""

import shutil

import pytest


def error(result):
    """Return the message of a command that must have failed with one."""
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.partition("Error: ")[2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--problem=multi30k_end"], "Did you mean 'multi30k_ende'"),
        (
            ["--problem=number_words_ende", "--hparams_set=bigg"],
            "Did you mean 'big'",
        ),
        (
            [
                "--problem=number_words_ende",
                "--hparams_set=tiny",
                "--hparams=hiden_size=3",
            ],
            "Did you mean hidden_size",
        ),
        (
            [
                "--problem=number_words_ende",
                "--hparams_set=tiny",
                "--hparams=hidden_size=wide",
            ],
            "hidden_size must be of type int; got 'wide'",
        ),
        ([], "--problem is needed"),
        (
            [
                "--problem=number_words_ende",
                "--hparams_set=tiny",
                "--hparams=model=transfomer",
            ],
            "Unknown model 'transfomer'. Did you mean 'transformer' or",
        ),
        (
            [
                "--problem=number_words_ende",
                "--hparams_set=tiny",
                "--hparams=optimizer=nadem",
            ],
            "hparam optimizer has no 'nadem'. Did you mean nadam",
        ),
        (["surprise"], "Unexpected arguments: ['surprise']"),
        (
            ["--hidden_size=64"],
            "'hidden_size'. It is a setting: write --hparams=hidden_size=…",
        ),
        (["--xla=x"], "should be one of <auto|on|off>. t2t trainer --help"),
    ],
)
def test_trainer_explains_wrong_names_and_settings(run, flags, message):
    assert message in error(run("trainer", *flags))


def test_trainer_generates_data_with_the_engine(run, flags_of, tmp_path):
    flags = *flags_of(tmp_path), "--hparams_set=tiny", "--engine=spark"
    message = error(run("trainer", *flags, f"--output_dir={tmp_path / 'run'}"))
    assert "engine must be local, or dask:ADDRESS" in message


def test_missing_raw_file_is_named(run, flags_of, tmp_path):
    (tmp_path / "raw").mkdir()
    message = error(run("datagen", *flags_of(tmp_path)))
    assert "has neither validation.xx nor validation.xx.gz" in message


def test_misaligned_raw_files_are_refused(run, flags_of, raw_writer, tmp_path):
    raw = raw_writer(tmp_path / "raw", train=100)
    with open(raw / "train.yy", "a") as file:
        file.write("one more\n")
    message = error(run("datagen", *flags_of(tmp_path)))
    assert "train.xx has 100 lines" in message
    assert "train.yy has 101" in message


def test_file_in_place_of_a_folder_is_named(run, flags_of, tmp_path):
    (tmp_path / "data").write_text("a file")
    message = error(run("datagen", *flags_of(tmp_path)))
    assert message.startswith(f"Not a directory: {tmp_path / 'data'}")


def test_data_dir_flag_wins_over_the_runs_folder(run, trained, tmp_path):
    flags = f"--output_dir={trained / 'run'}", f"--data_dir={tmp_path}"
    message = error(run("evaluate", *flags))
    assert message.startswith(f"There is no data in {tmp_path}")


def test_missing_folder_of_the_output_is_named(run, trained, tmp_path):
    message = error(
        run(
            "decoder",
            f"--output_dir={trained / 'run'}",
            f"--decode_to_file={tmp_path / 'none' / 'out.txt'}",
        )
    )
    assert message.startswith(f"No such file or directory: {tmp_path / 'none'}")


def test_empty_training_set_is_refused(run, flags_of, raw_writer, tmp_path):
    raw_writer(tmp_path / "raw", train=0)
    message = error(run("datagen", *flags_of(tmp_path)))
    assert "nothing to train on" in message


def test_output_dir_of_another_run_is_refused(run, flags_of, trained):
    message = error(
        run(
            "trainer",
            *flags_of(trained),
            "--hparams_set=tiny",
            f"--output_dir={trained / 'run'}",
        )
    )
    assert "holds another run" in message
    assert message.startswith("hidden_size: 32 -> 128; ")


def test_flags_that_contradict_the_run_are_refused(run, trained):
    message = error(
        run("decoder", f"--output_dir={trained / 'run'}", "--hparams_set=big")
    )
    assert message.startswith("hparams_set: 'tiny' -> 'big'. ")


def test_missing_run_or_checkpoint_is_named(run, trained, tmp_path):
    message = error(run("decoder", f"--output_dir={tmp_path}"))
    assert "There is no run in" in message
    copy = tmp_path / "copy"
    shutil.copytree(trained / "run", copy)
    shutil.rmtree(copy / "checkpoints")
    shutil.rmtree(copy / "averaged", ignore_errors=True)
    message = error(run("decoder", f"--output_dir={copy}"))
    assert "There is no checkpoint" in message
    folder = trained / "run" / "checkpoints"
    flags = f"--output_dir={trained / 'run'}", f"--checkpoint_path={folder}"
    assert f"There is no checkpoint {folder}" in error(run("decoder", *flags))


def test_damaged_vocabulary_is_refused(run, trained, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained / "run", copy)
    (copy / "vocab.model").write_bytes(b"not a vocabulary")
    message = error(run("decoder", f"--output_dir={copy}"))
    assert "Cannot use the vocabulary" in message


def test_missing_export_is_named(run, tmp_path):
    message = error(run("query", f"--export_dir={tmp_path}"))
    assert "There is no exported model" in message


@pytest.mark.slow
def test_long_lines_are_refused_and_the_others_translated(
    run, trained, tmp_path
):
    (tmp_path / "in.txt").write_text(f"a b c\n{'a b c d ' * 20}\nd e\n")
    settings = "max_input_length=20,long_inputs=refuse"
    result = run(
        "decoder",
        f"--output_dir={trained / 'run'}",
        f"--decode_hparams={settings}",
        f"--decode_from_file={tmp_path / 'in.txt'}",
        f"--decode_to_file={tmp_path / 'out.txt'}",
    )
    message = error(result)
    assert "longer than max_input_length=20 subwords" in message
    assert "line 2 (" in message
    first, second, third, end = (tmp_path / "out.txt").read_text().split("\n")
    assert first and third
    assert second == end == ""
