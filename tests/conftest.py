"""Fixtures for all tests: eight logical CPUs, a tiny model, a tiny corpus."""

import dataclasses
import functools
import gc
import os
import pathlib
import runpy
import signal
import sys

import hypothesis
import numpy as np
import page_definitions
import pytest

from t2t_repro import registry

# In tests/plugins/.
pytest_plugins = (
    "chromium dask_cluster exported_models fault_outcomes forked memory_store "
    "shared_folders stop_after stored_run"
).split()

# Every run has the same examples; --hypothesis-profile=thorough draws others,
# two hundred times as many.
hypothesis.settings.register_profile(
    "repeatable", deadline=None, derandomize=True, max_examples=50
)
hypothesis.settings.register_profile(
    "thorough", deadline=None, max_examples=10_000
)
hypothesis.settings.load_profile("repeatable")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# A graph is thousands of objects. The collector, which by default visits young
# ones after 700 more, would take 5% of the CPU time of the tests.
gc.set_threshold(20_000, 10, 10)
# A shell that runs the tests in the background makes them ignore Control-C, and
# nohup hang-ups, and with them the commands that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

LOGICAL_CPUS = 8  # replicas, as in section 5.2
VOCAB_SIZE = 20
EOS = 1
ANIMALS = [
    "two birds sing",
    "the cat sat on the mat",
    "a dog ran in the park today and the cat sat on the mat",
    "birds",
    "a dog sat",
]


@pytest.fixture(scope="session", autouse=True)
def _list_of_definitions(tmp_path_factory):
    """Keep the list of definitions of a user's own computer as it is."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data_home"))


@pytest.fixture(scope="session", autouse=True)
def _definitions():
    """Load the definitions before a test replaces a registry they fill."""
    registry.load_definitions()


@pytest.fixture(scope="session", autouse=True)
def _logical_cpus():
    """Split the CPU before TensorFlow starts, in runs that import it.

    GPUs are hidden: tests compare results bit by bit, on one kind of device.
    To optimize small graphs, or to divide small operations among threads, takes
    longer than it saves. Commands in processes of their own do both.
    """
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        from t2t_repro.runtime import devices, graph

        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(1)
        graph.optimize_for(num_lines=1)
        devices.make_logical_devices(LOGICAL_CPUS)


@pytest.fixture(scope="session")
def strategy_of():
    """Return a function: number of replicas -> strategy over as many CPUs."""
    import tensorflow as tf

    @functools.cache
    def make(replicas):
        if replicas == 1:
            return tf.distribute.get_strategy()
        # A process remembers the size of a group by its key, and every
        # MirroredStrategy counts keys from the same base. TensorFlow's own
        # tests move the base, too.
        tf.distribute.MirroredStrategy._collective_key_base += 1_000_000
        devices = [f"CPU:{i}" for i in range(replicas)]
        return tf.distribute.MirroredStrategy(devices)

    return make


@pytest.fixture(scope="session")
def read_events():
    """Return a function that reads a run's scalars: {name: {step: value}}."""
    from t2t_repro.reports import curves

    def read(folder):
        found = curves.read(folder).items()
        return {name: dict(curve) for name, curve in found}

    return read


@pytest.fixture(scope="session")
def assert_same_checkpoint():
    """Return a function that asserts that two checkpoints are identical."""
    import tensorflow as tf

    def read(path):
        reader = tf.train.load_checkpoint(str(path))
        return {
            name: reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map()
            if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
        }

    def check(actual, expected):
        state = read(actual)
        for name, value in read(expected).items():
            np.testing.assert_array_equal(
                state.pop(name), value, err_msg=f"{actual} {name}"
            )
        assert not state

    return check


@pytest.fixture(params=["float32", "mixed_bfloat16", "mixed_float16"])
def dtype(request):
    """Return a dtype policy in which layers must work."""
    return request.param


@pytest.fixture(scope="session")
def tiny_hparams():
    """Return settings of a model that traces in seconds, with dropout 0.1."""
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


def keep_entries(patch):
    """Let a MonkeyPatch restore what is registered, of every kind."""
    for known in registry._ALL:
        patch.setattr(known, "_entries", dict(known._entries))


@pytest.fixture
def registries(monkeypatch):
    """Forget what a test registers, and the modules of its --usr_dir."""
    keep_entries(monkeypatch)
    yield registry
    registry.load_definitions()
    for name in list(sys.modules):
        if name.partition(".")[0] == registry.PACKAGE:
            del sys.modules[name]


@pytest.fixture
def say(registries):
    """Register `say`, a search rule that reads side inputs."""
    from side_inputs import Say

    registries.search_rules.register("say")(Say)


@pytest.fixture(scope="module")
def toys():
    """Register what tests/toys and docs/hparams.md define, for one module."""
    with pytest.MonkeyPatch.context() as patch:
        keep_entries(patch)
        for module in ("updates", "focal"):
            page_definitions.register(module)
        for path in (pathlib.Path(__file__).parent / "toys").glob("*.py"):
            runpy.run_path(str(path))
        yield


@pytest.fixture
def register_model(monkeypatch, tiny_hparams):
    """Return a function that registers only a model, and returns its hparams.

    The model is called "mine", has one layer, and two vocabularies.
    """

    def register(cls):
        registry.models.register("mine", hparams=type(tiny_hparams))(cls)
        return dataclasses.replace(
            tiny_hparams,
            model="mine",
            num_hidden_layers=1,
            shared_embedding_and_softmax_weights=False,
        )

    monkeypatch.setattr(registry.models, "_entries", {})
    return register


@pytest.fixture(scope="module")
def kept_abstract_models():
    """Build a model without values once for a module, which reads shapes."""
    from t2t_repro.models import building

    with pytest.MonkeyPatch.context() as patch:
        kept = functools.cache(building.build_abstract)
        patch.setattr(building, "build_abstract", kept)
        yield


@pytest.fixture(scope="session")
def randomize():
    """Return a function that sets every weight of a model to a random value.

    The values are the same for any dtype, and none is 0 or 1. The deviation of
    matrices is near that of Glorot's initial values.
    """

    def draw(model, seed=0, matrices=0.3, vectors=0.1):
        random = np.random.default_rng(seed)
        for weight in model.weights:
            deviation = matrices if len(weight.shape) > 1 else vectors
            mean = float(weight.path.endswith(("gamma", "gain")))
            weight.assign(random.normal(mean, deviation, weight.shape))

    return draw


@pytest.fixture(scope="session")
def vocabulary():
    """Return a vocabulary of 300 subwords."""
    from t2t_repro.text.sentence_piece import Bpe

    return Bpe.learn(ANIMALS * 5, 300)


@pytest.fixture(scope="session")
def vocabularies(vocabulary):
    """Return one vocabulary for both sides."""
    from t2t_repro.text.vocabulary_pair import Vocabularies

    return Vocabularies.shared(vocabulary)


@pytest.fixture(scope="session")
def vocab_size():
    """Return the vocabulary size of tiny_corpora: PAD, EOS, 18 subwords."""
    return VOCAB_SIZE


@pytest.fixture(scope="session")
def tiny_corpora(tmp_path_factory):
    """Return corpora of 120 ("train") and 20 ("validation") pairs.

    A target is its input reversed. Some targets lack their last subword, so
    that the sides differ in length.
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
