"""Settings of TensorFlow Serving in scripts/serving/, and its page in docs/.

No Python package has the batching and monitoring messages, so these are read as
text.
"""

import re

from google.protobuf import text_format
from processes import ROOT
from tensorflow_serving.config import model_server_config_pb2

from t2t_repro.serving import requests

CONFIGS = ROOT / "scripts" / "serving"


def test_models_config_serves_latest_version():
    config = text_format.Parse(
        (CONFIGS / "models.config").read_text(),
        model_server_config_pb2.ModelServerConfig(),
    )
    (model,) = config.model_config_list.config
    assert (model.name, model.model_platform) == ("t2t", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1
    page = (ROOT / "docs" / "serving.md").read_text()
    assert f"multi30k:{model.base_path}:ro" in page


def test_batching_config_equals_limits_of_embedded_server():
    defaults = requests.Limits()
    text = (CONFIGS / "batching.config").read_text()
    found = re.findall(r"^(\w+) \{ value: (\d+) \}", text, re.M)
    config = {key: int(value) for key, value in found}
    assert config.pop("num_batch_threads") > 0
    assert config == {
        "max_batch_size": defaults.max_batch_size,
        "batch_timeout_micros": defaults.batch_timeout_ms * 1000,
        "max_enqueued_batches": defaults.max_waiting // defaults.max_batch_size,
    }


def test_metrics_path_equals_that_of_embedded_server(server):
    text = (CONFIGS / "monitoring.config").read_text()
    (path,) = re.findall(r'path: "(.+)"', text)
    assert server.http("GET", path)[0] == 200
