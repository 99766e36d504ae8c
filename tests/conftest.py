"""Fixtures: eight logical CPUs, a tiny model's settings, a tiny corpus."""

import collections
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile

import hypothesis
import numpy as np
import pytest

# The same examples in every run; --hypothesis-profile=thorough has others, and
# a hundred times as many.
hypothesis.settings.register_profile(
    "repeatable", deadline=None, derandomize=True
)
hypothesis.settings.register_profile(
    "thorough", deadline=None, max_examples=10_000
)
hypothesis.settings.load_profile("repeatable")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# A shell that runs the tests in the background has them ignore Control-C, and
# with them the commands that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

LOGICAL_CPUS = 8  # the replicas of section 5.2
VOCAB_SIZE = 20
EOS = 1
ANIMALS = [
    "two birds sing",
    "the cat sat on the mat",
    "a dog ran in the park today and the cat sat on the mat",
    "birds",
    "a dog sat",
]


# Files whose fixtures are dear, by the folder that has these: they stay with
# one of two workers, so that it alone makes them.
TOGETHER = {
    "commands": "bad_input decoder evaluate road serve",
    "faults": "clock commands_killed exports full_disk killed read_only",
    "serving": "attention client configs export page rest rpc versions "
    "without_python",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """loadfile, of files and of TOGETHER's groups where workers are two."""
    if config.getoption("dist") != "loadfile" or config.option.tx != 2 * [
        "popen"
    ]:
        return None
    from xdist.scheduler import LoadFileScheduling

    groups = {
        f"tests/{folder}/test_{name}.py": folder
        for folder, names in TOGETHER.items()
        for name in names.split()
    }

    class ByFixtures(LoadFileScheduling):
        """Units are files, or groups of them."""

        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return groups.get(file, file)

    return ByFixtures(config, log)


@pytest.fixture(scope="session", autouse=True)
def _logical_cpus():
    """Splits the CPU before TensorFlow starts, in runs that import it.

    GPUs are hidden: what is compared to the last bit is compared on one kind
    of device.
    """
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        from t2t_repro.training import hardware

        tf.config.set_visible_devices([], "GPU")
        hardware.make_logical_devices(LOGICAL_CPUS)


@pytest.fixture(scope="session")
def strategy_of():
    """A function of a number of replicas: a strategy of as many CPUs."""
    import tensorflow as tf

    @functools.cache
    def make(replicas):
        if replicas == 1:
            return tf.distribute.get_strategy()
        # A process remembers the size of a group by its key, and every
        # MirroredStrategy counts keys from the same base: TensorFlow's own
        # tests move it, too.
        tf.distribute.MirroredStrategy._collective_key_base += 1_000_000
        devices = [f"CPU:{i}" for i in range(replicas)]
        return tf.distribute.MirroredStrategy(devices)

    return make


class Forks:
    """tests/forks.py, and what it is asked for."""

    def __init__(self, folder):
        self._folder = folder
        self.process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name("forks.py")],
            cwd=pathlib.Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def ask(self, **request):
        """-> the number that is answered."""
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def __call__(self, name, *arguments, **settings):
        """-> CompletedProcess. Settings are stdin, env and kill_after."""
        command = Fork(self, self._folder, name, arguments)
        return command.completed(command.start(**settings))

    def start(self, name, *arguments, **settings):
        """-> Fork, which goes on while others are started."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self._folder))
        command = Fork(self, folder, name, arguments)
        command.pid = command.start(background=True, **settings)
        return command


class Fork:
    """A command that runs in a fork."""

    def __init__(self, forks, folder, name, arguments):
        self._forks, self._arguments = forks, (name, *map(str, arguments))
        self._streams = [folder / name for name in ("in", "out", "err")]

    def start(self, stdin="", env=None, **settings):
        """-> the answer."""
        for path, text in zip(self._streams, (stdin, "", ""), strict=True):
            path.write_text(text, "utf-8", "surrogateescape")
        return self._forks.ask(
            name=self._arguments[0],
            arguments=self._arguments[1:],
            streams=[str(path) for path in self._streams],
            env=env or {},
            **settings,
        )

    def completed(self, code):
        """-> CompletedProcess."""
        out, err = (path.read_text("utf-8") for path in self._streams[1:])
        return subprocess.CompletedProcess(self._arguments, code, out, err)

    def printed(self):
        """What it has printed so far."""
        return self._streams[1].read_text("utf-8")

    def wait(self):
        """-> CompletedProcess, when a fork in the background has ended."""
        pid, self.pid = self.pid, None
        return self.completed(self._forks.ask(wait=pid))

    def kill(self):
        """Ends it, if it has not ended."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()


@pytest.fixture(scope="session")
def forked(tmp_path_factory):
    """A function of a command, its arguments, stdin and env: runs a fork.

    What it returns is a CompletedProcess with text, as of python -m, but it
    comes seconds sooner: TensorFlow is imported once.
    """
    forks = Forks(tmp_path_factory.mktemp("forked"))
    yield forks
    forks.process.communicate()  # it ends where its requests do


@pytest.fixture
def tally(record_property):
    """A function of a fault, what it hit, how that ended, and how often."""

    def count(fault, subject, outcome, times=1):
        record_property("fault", (fault, subject, outcome, times))

    return count


def pytest_terminal_summary(terminalreporter):
    """What was tallied; with T2T_FAULTS=FILE it goes to that file, too."""
    counts = collections.Counter()
    for report in sum(terminalreporter.stats.values(), []):
        if getattr(report, "when", None) == "call":
            for name, value in report.user_properties:
                if name == "fault":
                    counts[tuple(value[:3])] += value[3]
    told = {}
    for (fault, subject, outcome), times in sorted(counts.items()):
        told.setdefault(fault, {}).setdefault(subject, {})[outcome] = times
    for fault, subjects in told.items():
        terminalreporter.section(fault)
        every = collections.Counter()
        for outcomes in subjects.values():
            every.update(outcomes)
        subjects["all"] = every
        for subject, outcomes in subjects.items():
            text = ", ".join(f"{n} {how}" for how, n in outcomes.items())
            terminalreporter.line(f"{subject}: {text}")
    if counts and "T2T_FAULTS" in os.environ:
        path = pathlib.Path(os.environ["T2T_FAULTS"])
        path.write_text(json.dumps(told, indent=2) + "\n")


@pytest.fixture(scope="session")
def read_events():
    """A function of a folder: its TensorBoard scalars, {tag: {step: value}}."""
    import tensorflow as tf
    from tensorflow.core.util import event_pb2

    def events(path):
        """Up to where its writer was killed."""
        with contextlib.suppress(tf.errors.DataLossError):
            for record in tf.data.TFRecordDataset(str(path)):
                yield event_pb2.Event.FromString(record.numpy())

    def read(folder):
        scalars = {}
        for path in sorted(folder.glob("events.*")):
            for event in events(path):
                for value in event.summary.value:
                    steps = scalars.setdefault(value.tag, {})
                    steps[event.step] = tf.make_ndarray(value.tensor).item()
        return scalars

    return read


@pytest.fixture(scope="session")
def run_layer_test():
    """tests/layers/layer_test.py's function, without a package `tests`."""
    file = pathlib.Path(__file__).parent / "layers" / "layer_test.py"
    return runpy.run_path(str(file))["run_layer_test"]


@pytest.fixture(params=["float32", "mixed_bfloat16", "mixed_float16"])
def dtype(request):
    """Each dtype policy in which a layer must work."""
    return request.param


@pytest.fixture(scope="session")
def tiny_hparams():
    """A model small enough to trace in seconds, with dropout 0.1."""
    from t2t_repro import registry

    registry.load_definitions()
    return dataclasses.replace(
        registry.build_hparams("tiny"),
        hidden_size=16,
        filter_size=32,
        num_heads=2,
        num_hidden_layers=2,
        learning_rate_constant=0.02,
        learning_rate_warmup_steps=10,
        batch_tokens=200,
        max_length=32,
    )


@pytest.fixture(scope="session")
def randomize():
    """A function of a model, a seed and deviations: draws every weight.

    None hides behind a 0 or a 1, and each is the same in any dtype. Glorot
    could have given such matrices.
    """

    def draw(model, seed=0, matrices=0.3, vectors=0.1):
        random = np.random.default_rng(seed)
        for weight in model.weights:
            deviation = matrices if len(weight.shape) > 1 else vectors
            mean = 1.0 if weight.path.endswith("gamma") else 0.0
            weight.assign(random.normal(mean, deviation, weight.shape))

    return draw


@pytest.fixture(scope="session")
def vocabulary():
    """300 subwords, of lines about animals."""
    from t2t_repro.text import subwords

    return subwords.learn(ANIMALS * 5, 300)


@pytest.fixture(scope="session")
def vocab_size():
    """Of tiny_corpora: PAD, EOS and 18 subwords."""
    return VOCAB_SIZE


@pytest.fixture(scope="session")
def tiny_corpora(tmp_path_factory):
    """{"train": 120 pairs, "validation": 20}; targets are inputs reversed.

    Some targets lack their last subword, so that the sides differ in length.
    """
    from t2t_repro.data import corpus

    folder = tmp_path_factory.mktemp("corpora")
    random = np.random.default_rng(0)
    corpora = {}
    for split, pairs in (("train", 120), ("validation", 20)):
        ids = {"inputs": [], "targets": []}
        for i in range(pairs):
            words = random.integers(2, VOCAB_SIZE, random.integers(2, 11))
            words = words.tolist()
            ids["inputs"].append([*words, EOS])
            ids["targets"].append([*words[::-1][: len(words) - i % 2], EOS])
        path = folder / f"{split}.arrow"
        corpus.write_shard(path, ids, {}, VOCAB_SIZE)
        corpora[split] = corpus.Corpus([path])
    return corpora
