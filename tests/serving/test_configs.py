"""TensorFlow Serving's settings in scripts/serving/, and its page's commands.

Its batching and monitoring messages are in no Python package; they are read
as text.
"""

import pathlib
import re

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from t2t_repro.serving import limits

ROOT = pathlib.Path(__file__).parent.parent.parent
CONFIGS = ROOT / "scripts" / "serving"


def values(name):
    """{key: value} of the lines `key { value: 3 }`."""
    text = (CONFIGS / name).read_text()
    return dict(re.findall(r"^(\w+) \{ value: (\d+) \}", text, re.M))


def test_models():
    found = text_format.Parse(
        (CONFIGS / "models.config").read_text(),
        model_server_config_pb2.ModelServerConfig(),
    )
    (model,) = found.model_config_list.config
    assert (model.name, model.model_platform) == ("t2t", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1
    page = (ROOT / "docs" / "serving.md").read_text()
    assert f"multi30k:{model.base_path}:ro" in page


def test_batches_are_those_of_the_embedded_server():
    taken = limits.Limits()
    found = {
        key: int(value) for key, value in values("batching.config").items()
    }
    assert found.pop("num_batch_threads") > 0
    assert found == {
        "max_batch_size": taken.max_batch_size,
        "batch_timeout_micros": taken.batch_timeout_ms * 1000,
        "max_enqueued_batches": taken.max_waiting // taken.max_batch_size,
    }


def test_metrics_are_where_the_embedded_server_has_them(server):
    text = (CONFIGS / "monitoring.config").read_text()
    (path,) = re.findall(r'path: "(.+)"', text)
    assert server.http("GET", path)[0] == 200


def test_the_page_names_files_that_exist():
    page = (ROOT / "docs" / "serving.md").read_text()
    named = set(re.findall(r"/(\w+\.config)", page))
    assert named == {path.name for path in CONFIGS.glob("*.config")}
