"""Metrics of the embedded server, in the format of Prometheus."""

import prometheus_client as prometheus

CONTENT_TYPE = prometheus.CONTENT_TYPE_PLAIN_0_0_4
# From one cached word on a GPU to a page of text on a slow CPU.
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = prometheus.CollectorRegistry()
        labels = ("protocol", "signature")
        self.requests = prometheus.Counter(
            "t2t_requests",
            "Requests answered, by gRPC's name of the outcome.",
            (*labels, "code"),
            registry=self._registry,
        )
        self.seconds = prometheus.Histogram(
            "t2t_request_seconds",
            "From a request's arrival to its answer.",
            labels,
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.batch_sentences = prometheus.Histogram(
            "t2t_batch_sentences",
            "Sentences that went through the model together.",
            ("signature",),
            buckets=_SENTENCES,
            registry=self._registry,
        )
        self.waiting_sentences = prometheus.Gauge(
            "t2t_waiting_sentences",
            "Sentences in the queue.",
            ("signature",),
            registry=self._registry,
        )
        self.version = prometheus.Gauge(
            "t2t_model_version",
            "The version that answers.",
            registry=self._registry,
        )
        self.http_responses = prometheus.Counter(
            "t2t_http_responses",
            "Answers over REST, to requests of any kind.",
            ("status",),
            registry=self._registry,
        )
        self.connections = prometheus.Gauge(
            "t2t_connections",
            "Open connections of REST.",
            registry=self._registry,
        )
        self.refusals = prometheus.Counter(
            "t2t_refusals",
            "Requests and connections refused without a look at the content.",
            ("reason",),
            registry=self._registry,
        )
        self.version_loads = prometheus.Counter(
            "t2t_version_loads",
            "Versions of the model that were loaded, or failed to load.",
            ("outcome",),
            registry=self._registry,
        )
        self.version_crashes = prometheus.Counter(
            "t2t_version_crashes",
            "Processes of versions that ended by themselves.",
            registry=self._registry,
        )

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return prometheus.generate_latest(self._registry)
