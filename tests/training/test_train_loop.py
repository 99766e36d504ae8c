"""The loop around fake steps: when it saves, stops, and what it reports."""

import contextlib
import dataclasses
import json
import math
import re
import shutil
import signal
import types

import numpy as np
import pytest
import tensorflow as tf
from cases import read_cases

from t2t_repro import errors
from t2t_repro.io import fields
from t2t_repro.models import building
from t2t_repro.training import train_loop, train_session
from t2t_repro.training.callbacks import Callback
from t2t_repro.training.options import Options

KEEP_BEST = {"keep_best_checkpoints": 2, "keep_checkpoint_max": 1}


def test_summary_describes_training(runs, tmp_path, monkeypatch, reused_state):
    monkeypatch.setattr(train_session, "_build_state", reused_state)
    # On a machine of one core, and where an operation may have but one thread.
    monkeypatch.setattr(train_session.devices.cpu, "usable_cores", lambda: 2)
    monkeypatch.setattr(train_session.devices, "operation_threads", lambda: 2)
    epochs = 24 * 8 / runs.plan.rows_per_epoch
    parameters = building.build_abstract(runs.hparams, 20).count_params()
    summary = train_loop.session_summary(runs.session(tmp_path))
    expected = {
        "parameters": f"{parameters:,}",
        "batch": f"{runs.plan.summary()} (batch_tokens=200, in real tokens; "
        "16% more target tokens, because rows are a multiple of 8)",
        "per replica": "1/1 of it, at most 8,192 slots at once",
        "pairs": "120; 0 longer than max_length=32 are dropped",
        "validation": "after every 8 steps and the last one, 3 to come; "
        "of 20 pairs 20 are used, 0 are translated",
        "steps": f"24 = {epochs:,.1f} epochs; 0 done",
        # 0.02 / sqrt(10)
        "learning rate": "constant*linear_warmup*rsqrt_decay, "
        "peak 0.00632 at step 11",
    }
    assert summary | expected == summary
    assert re.fullmatch(
        r"1 replica on one CPU, .*\d threads, float32, XLA off",
        summary["hardware"],
    )
    assert "that 24 steps and 3 validations take about 1 s" in summary["time"]
    flags = {"train_steps": 4, "eval_every": 0, "max_tokens_per_replica": 1_024}
    other = train_loop.session_summary(runs.session(tmp_path, **flags))
    owed = train_loop.session_summary(runs.session(tmp_path), True)
    assert "4 to come" in owed["validation"]
    assert other["validation"] == "none, by --eval_every=0"
    assert "that 4 steps take about 1 s" in other["time"]
    assert other["per replica"].endswith("at most 1,024 slots at once")
    # 0.02 / sqrt(10) * 3 / 10
    assert other["learning rate"].endswith(", peak 0.0019 at step 4")


def test_summary_forecasts_the_time_on_cpus(monkeypatch):
    """100 tokens a step of 3 GFLOP each, on two cores of 100 GFLOP/s.

    The losses of two validations take as long as 20 steps.
    """
    monkeypatch.setattr(
        train_loop.devices, "cpu_product_flops", lambda policy: 1e11
    )
    session = types.SimpleNamespace(
        policy="float32",
        execution=types.SimpleNamespace(
            microbatches=types.SimpleNamespace(parallel=2)
        ),
        worker=types.SimpleNamespace(count=1),
        task=types.SimpleNamespace(
            plan=types.SimpleNamespace(target_tokens=100.0)
        ),
        flops_per_token=3e9,
        options=types.SimpleNamespace(train_steps=100),
        validation_steps=lambda validations: 10.0 * validations,
        state=types.SimpleNamespace(step=60),
    )
    assert train_loop._forecast(session, 2) == {
        "time": "a step needs 0.3 TFLOP, and products of matrices reach 200 "
        "GFLOP/s, so that 40 steps and 2 validations take about 1 min 30 s or "
        "more"
    }
    session.worker.count = 2
    assert "about 45 s or more" in train_loop._forecast(session, 2)["time"]
    session.state.step = 100
    assert train_loop._forecast(session, 2) == {}
    session.state.step = 60
    monkeypatch.setattr(
        train_loop.devices, "cpu_product_flops", lambda policy: None
    )
    assert train_loop._forecast(session, 2) == {}


def test_summary_compares_checkpoints_with_free_space(tmp_path, monkeypatch):
    session = types.SimpleNamespace(
        options=Options(
            keep_checkpoint_max=3,
            keep_best_checkpoints=2,
            train_steps=100,
            save_checkpoints_steps=10,
        ),
        state=types.SimpleNamespace(
            variables=[tf.zeros([1000, 500]), tf.zeros([7], tf.int64)]
        ),
        output_dir=tmp_path / "run",
    )
    free = shutil.disk_usage(tmp_path)._replace(free=5_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    found = train_loop._checkpoint_space(session)
    assert found == "at most 6, of 2.0 MB each; the disk has 5.0 GB free"
    # Six have 4 bytes of each float, and 8 of each integer.
    free = free._replace(free=6 * (4 * 500_000 + 8 * 7))
    assert "too few" not in train_loop._checkpoint_space(session)
    free = free._replace(free=free.free - 1)
    assert "too few: make room" in train_loop._checkpoint_space(session)
    (session.output_dir / "checkpoints").mkdir(parents=True)
    (session.output_dir / "checkpoints" / "ckpt-1.index").touch()  # of the six
    assert "too few" not in train_loop._checkpoint_space(session)
    session.options = dataclasses.replace(session.options, train_steps=21)
    assert "at most 3, of" in train_loop._checkpoint_space(session)


def test_best_checkpoints_are_kept_until_better_ones_replace_them(
    runs, fake_steps, tmp_path
):
    """The losses are those of steps 1, 2, …; a restart changes nothing."""
    settings = {"eval_every": 1, "save_checkpoints_steps": 1} | KEEP_BEST
    losses = [5.0, 3.0, 4.0, 6.0, 6.0, 2.0, 3.0]
    done = 0
    for steps, saved in ((3, [2, 3]), (5, [2, 3, 5]), (7, [2, 6, 7])):
        fake_steps(losses=losses[done:])
        runs.train(tmp_path, train_steps=steps, **settings)
        assert runs.saved_steps(tmp_path) == saved
        done = steps


UNFIT_OPTIONS = read_cases("""
keep_best_checkpoints=1,save_checkpoints_steps=5
    needs a checkpoint; got --eval_every=8 and --save_checkpoints_st
keep_best_checkpoints=1,save_checkpoints_secs=60
    needs a checkpoint; got --eval_every=8 and .*_checkpoints_secs=60
keep_best_checkpoints=2,eval_every=0
    --keep_best_checkpoints=2 needs validations; got --eval_every=0
early_stopping_evals=3,eval_every=0
    --early_stopping_evals=3 needs validations; got --eval_every=0
""")


@pytest.mark.parametrize("text", UNFIT_OPTIONS)
def test_options_that_lack_validations_or_checkpoints_are_refused(runs, text):
    settings = {"eval_every": 8} | fields.parse(Options, text)
    with pytest.raises(errors.UserError, match=UNFIT_OPTIONS[text]):
        Options(**settings).resolved(runs.hparams)


def test_save_checkpoints_secs_saves_at_first_step_after_interval(
    runs, fake_steps, tmp_path, monkeypatch
):
    """Steps take 10 seconds: 25 are over after 3 of them."""
    clock = types.SimpleNamespace(now=0.0)
    fake_steps(lambda number, _: setattr(clock, "now", 10.0 * number))
    fake_time = types.SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(train_loop, "time", fake_time)
    settings = {"save_checkpoints_secs": 25, "eval_every": 0}
    runs.train(tmp_path, train_steps=8, **settings)
    assert runs.saved_steps(tmp_path) == [3, 6, 8]


def test_validation_runs_every_n_steps_and_at_the_end(
    runs, fake_steps, tmp_path, read_events
):
    """Its results are events, and are stored with the numbers of pairs."""
    fake_steps(losses=[4.0, 3.0, 5.0])
    runs.train(tmp_path, train_steps=7, eval_every=3, eval_pairs=5)
    losses = read_events(tmp_path)["validation/loss"]
    assert losses == {3: 4.0, 6: 3.0, 7: 5.0}
    *_, last = contents(tmp_path)[1]
    assert last.keys() == {
        "step",
        "loss",
        "loss_minus_smoothing_constant",
        "perplexity",
        "perplexity_sentences",
        "accuracy",
        "accuracy_sentences",
    }
    assert (last["loss"], last["perplexity_sentences"]) == (5.0, 5)


def test_signal_saves_after_the_step(runs, fake_steps, tmp_path, capsys):
    def on_step(step, _):
        if step == 3:
            signal.raise_signal(signal.SIGHUP)

    fake_steps(on_step)
    code, printed = runs.train(tmp_path)
    assert code == 129
    assert runs.saved_steps(tmp_path) == [3]
    shown = capsys.readouterr().err
    assert shown.count("SIG") == shown.count("stopping after step 3,") == 1
    assert "Stopped after step 3; checkpoint ckpt-3." in printed


def test_early_stopping_counts_validations_of_earlier_sessions(
    runs, fake_steps, tmp_path, capsys
):
    """The best of 3 … 2.1 is the second; two more were not better."""
    stopping = {"eval_every": 3, "early_stopping_evals": 2}
    fake_steps(losses=[3.0, 2.0, 2.5])
    runs.train(tmp_path, train_steps=9, **stopping)
    assert "has not improved" not in capsys.readouterr().err
    fake_steps(losses=[2.1, 1.0])
    code, _ = runs.train(tmp_path, **stopping)
    assert code == 0
    assert runs.saved_steps(tmp_path)[-1] == 12
    message = "The validation loss has not improved for 2 evaluations."
    assert message in capsys.readouterr().err
    # The same command again does no more.
    code, printed = runs.train(tmp_path, **stopping)
    assert code == 0
    assert "Nothing to do: after 12 steps the validation loss" in printed
    assert runs.saved_steps(tmp_path)[-1] == 12


def test_initial_weights_depend_on_the_seed(runs, tmp_path):
    a, b, c = (
        runs.session(tmp_path, random_seed=seed).state.model.weights
        for seed in (1, 1, 2)
    )
    for first, same, other in zip(a, b, c, strict=True):
        np.testing.assert_array_equal(first, same)
        if "kernel" in first.path:
            assert not np.array_equal(first, other)


def test_profiler_traces_steps_11_to_15_of_the_session(
    runs, fake_steps, tmp_path, monkeypatch
):
    """Session "a" begins with step 5. A validation or an error ends a trace."""
    calls = []

    @contextlib.contextmanager
    def profile(folder):
        assert folder.startswith(str(tmp_path))
        calls.append("start")
        try:
            yield
        finally:
            calls.append("stop")

    def on_step(number, _):
        calls.append(number)
        if number == fails_at:
            raise RuntimeError

    monkeypatch.setattr(tf.profiler.experimental, "Profile", profile)
    fails_at = None
    fake_steps(on_step)
    rare = {"save_checkpoints_steps": 100, "eval_every": 100, "profile": True}
    runs.train(tmp_path / "a", train_steps=4)
    runs.train(tmp_path / "a", train_steps=26, **rare)
    steps = list(range(1, 27))
    assert calls == [*steps[:14], "start", *steps[14:19], "stop", *steps[19:]]
    calls.clear()
    runs.train(tmp_path / "b", train_steps=14, **rare | {"eval_every": 12})
    assert calls == [*steps[:10], "start", 11, 12, "stop", 13, 14]
    fails_at = 12
    with pytest.raises(RuntimeError):
        runs.train(tmp_path / "c", **rare)
    assert calls[-3:] == [11, 12, "stop"]


def test_nan_loss_stops_before_the_next_checkpoint(runs, fake_steps, tmp_path):
    """Without a checkpoint, the loss of step 6 would be fetched later."""
    fake_steps(lambda number, _: math.nan if number >= 6 else None)
    with pytest.raises(errors.UserError) as caught:
        runs.train(tmp_path, eval_every=1_000)
    sentences = len(runs.plan.batch(5).pairs)
    text = str(caught.value)
    assert text.startswith("The loss of step 6 is nan; ")
    assert (
        f"{sentences} sentences in 8 rows of 32 input and 32 target slots"
        in text
    )
    assert f"{tmp_path / 'checkpoints' / 'ckpt-4'}, is from before" in text
    assert runs.saved_steps(tmp_path) == [4]


def test_non_finite_weight_is_not_saved(runs, fake_steps, tmp_path):
    """The losses are finite."""

    def on_step(number, model):
        if number == 7:
            weight = model.weights[3]
            weight.assign(np.full(weight.shape, np.inf))

    fake_steps(on_step)
    with pytest.raises(errors.UserError, match="update of step 8 left values"):
        runs.train(tmp_path)
    assert runs.saved_steps(tmp_path) == [4]


def test_weights_without_a_validation_loss_are_not_saved(
    runs, fake_steps, tmp_path
):
    fake_steps(losses=[1.0, math.nan])
    with pytest.raises(errors.UserError, match="loss after step 6 is nan, so"):
        runs.train(tmp_path, eval_every=3)
    assert runs.saved_steps(tmp_path) == [4]


def test_compilations_are_counted_and_retracing_is_reported(
    runs, fake_steps, tmp_path, read_events, capsys
):
    """The step is traced for its first batch, and again for the fifth."""
    traces = [0]

    def on_step(number, _):
        traces[0] = (number + 3) // 4

    fake_steps(on_step, traces=lambda: traces[0])
    runs.train(tmp_path, train_steps=6)
    lines = capsys.readouterr().err.splitlines()
    (line,) = (line for line in lines if "compiled again" in line)
    assert line.startswith("step 5: ") and line.endswith("1 x 8 x 32")
    assert read_events(tmp_path)["train/compilations"] == {6: 2}


def test_batches_that_differ_in_their_inputs_have_other_shapes():
    """Each batch is traced, of which the last has a known shape."""
    traces = []

    def train_step(batch):
        traces.append(batch)

    train_step.experimental_get_tracing_count = lambda: len(traces)
    counted = train_session.CountedStep(train_step, xla=False)
    notices = []
    for length in (8, 16, 16):
        shapes = {"inputs": (1, 8, length), "targets": (1, 8, 24)}
        counted({side: tf.zeros(shape) for side, shape in shapes.items()})
        notices.append(counted.retrace_notice)
    assert notices[:2] == [None, None] and "1 x 8 x 24" in notices[2]


def test_early_stop_of_an_earlier_session_is_told_by_the_chief(tmp_path):
    """Another worker may see the folder as it was before."""
    session = types.SimpleNamespace(
        options=Options(train_steps=9, early_stopping_evals=2),
        state=types.SimpleNamespace(step=5),
        stopping_metric="loss",
        output_dir=tmp_path,
        worker=types.SimpleNamespace(broadcast=lambda own: True),
    )
    assert "had not improved" in train_loop._nothing_to_do(session)


def fail(error):
    raise error


def contents(folder):
    """Return names of checkpoints' files, and the stored validations."""
    names = sorted(path.name for path in folder.glob("checkpoints/*"))
    return names, json.loads((folder / "validation.json").read_text())


# Validations at steps with a scheduled checkpoint, and at others.
EVERY_4_OR_BETWEEN = pytest.mark.parametrize(
    ("eval_every", "saved"),
    [pytest.param(8, [4, 8], marks=pytest.mark.slow), (6, [4, 6])],
)


@pytest.mark.parametrize(
    "train_steps", [16, pytest.param(24, marks=pytest.mark.slow)]
)
def test_signal_skips_the_validation_which_the_next_session_makes_up_for(
    runs, fake_steps, tmp_path, train_steps, read_events
):
    """Step 16 is validated before step 17, also if it is the last one."""
    settings = {"train_steps": train_steps, **KEEP_BEST}
    fake_steps(losses=[2.0, 3.0, 4.0])
    runs.train(tmp_path / "whole", **settings)

    def on_step(step, _):
        if step == 16:
            signal.raise_signal(signal.SIGTERM)

    fake_steps(on_step, losses=[2.0])
    code, _ = runs.train(tmp_path / "parts", **settings)
    assert code == 143
    assert runs.saved_steps(tmp_path / "parts") == [8, 16]
    assert len(contents(tmp_path / "parts")[1]) == 1
    fake_steps(losses=[3.0, 4.0])
    code, _ = runs.train(tmp_path / "parts", **settings)
    assert code == 0
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    whole, parts = (
        read_events(tmp_path / name)["validation/loss"]
        for name in ("whole", "parts")
    )
    assert whole == parts
    before = contents(tmp_path / "parts")
    _, printed = runs.train(tmp_path / "parts", **settings | {"train_steps": 9})
    message = f"Nothing to do: {train_steps} steps are done, --train_steps=9."
    assert message in printed
    assert contents(tmp_path / "parts") == before


@EVERY_4_OR_BETWEEN
def test_signal_during_a_validation_stops_after_it(
    runs, fake_steps, tmp_path, eval_every, saved
):
    fake_steps(on_validation=lambda: signal.raise_signal(signal.SIGTERM))
    code, printed = runs.train(tmp_path, eval_every=eval_every)
    assert code == 143
    assert f"Stopped after step {eval_every}; checkpoint" in printed
    assert runs.saved_steps(tmp_path) == saved
    assert len(contents(tmp_path)[1]) == 1


@pytest.mark.parametrize("train_steps", [8, 16])
@pytest.mark.parametrize("moment", ["begin", "written"])
def test_signal_stops_a_validation_which_the_next_session_repeats(
    runs, fake_steps, tmp_path, train_steps, moment
):
    class SignalBeforeValidation(Callback):
        def _signal(self, step):
            if step == 8:
                signal.raise_signal(signal.SIGTERM)

    before = f"on_checkpoint_{moment}"
    setattr(SignalBeforeValidation, before, SignalBeforeValidation._signal)
    settings = {"train_steps": train_steps, "eval_every": 8}
    fake_steps()
    runs.train(tmp_path / "whole", **settings)
    fake_steps(on_validation=lambda: pytest.fail("it takes a batch"))
    code, _ = runs.train(
        tmp_path / "parts", callbacks=[SignalBeforeValidation()], **settings
    )
    assert code == 143
    assert not (tmp_path / "parts" / "validation.json").exists()
    fake_steps()
    assert runs.train(tmp_path / "parts", **settings)[0] == 0
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize("eval_every", [0, 1, 4, 10, 11])
def test_validations_to_come_are_those_that_steps_are_followed_by(
    tiny_hparams, eval_every
):
    options = Options(train_steps=10, eval_every=eval_every)
    options = options.resolved(tiny_hparams)
    for done in range(13):
        steps = range(done + 1, 11)
        assert options.validations_after(done) == sum(
            map(options.validates, steps)
        )


@EVERY_4_OR_BETWEEN
def test_error_in_a_validation_loses_no_step(
    runs, fake_steps, tmp_path, eval_every, saved
):
    settings = {"eval_every": eval_every, "train_steps": 12}
    fake_steps(on_validation=lambda: fail(RuntimeError("a broken metric")))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a broken metric"):
            runs.train(tmp_path / "parts", **settings)
        assert runs.saved_steps(tmp_path / "parts") == saved
    assert not (tmp_path / "parts" / "validation.json").exists()
    fake_steps()
    for name in ("whole", "parts"):
        runs.train(tmp_path / name, **settings)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_exhausted_memory_is_reported_with_slots_and_checkpoint(
    runs, fake_steps, tmp_path
):
    """A full disk, which TensorFlow reports so, too, is left as it is."""
    exhausted = tf.errors.ResourceExhaustedError
    error = exhausted(None, None, "events.1; No space left on device")
    fake_steps(lambda number, _: fail(error) if number == 6 else None)
    with pytest.raises(exhausted):
        runs.train(tmp_path)
    error = exhausted(None, None, "OOM when allocating tensor\nwith a trace")
    with pytest.raises(errors.UserError) as caught:
        runs.train(tmp_path)
    message = str(caught.value)
    assert "for 8,192 slots at once: OOM when allocating tensor The" in message
    newest = tmp_path / "checkpoints" / "ckpt-4"
    assert f"resumes from the newest checkpoint, {newest}. " in message
    assert "--max_tokens_per_replica=4096" in message
    assert caught.value.see == "out-of-memory"
