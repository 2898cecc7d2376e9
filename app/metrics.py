"""The counters of the loaded models as Prometheus text."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtimes.base import EngineStats

CONTENT_TYPE = CONTENT_TYPE_LATEST

_COUNTERS = {
    "prompt_rows": "Prompt tokens that went through the model.",
    "prompt_tokens": "Prompt tokens that were asked for.",
    "cached_tokens": "Prompt tokens that needed no computing.",
    "decode_rows": "Tokens written.",
    "steps": "Forward passes.",
    "requests": "Requests accepted.",
    "cancelled": "Requests whose client left.",
    "evictions": "Cached branches dropped for room.",
    "preemptions": "Running requests put back in the queue for room.",
    "drafted": "Tokens guessed ahead.",
    "drafts_accepted": "Guessed tokens that the model agreed with.",
    "forced": "Tokens that a constraint left no choice about.",
    "restored_host": "Pieces of KV memory brought back from RAM.",
    "restored_disk": "Pieces of KV memory brought back from disk.",
}
_GAUGES = {
    "running": "Requests being answered.",
    "waiting": "Requests in the queue.",
    "cells": "Tokens the KV cache can hold.",
    "cells_used": "Tokens the KV cache holds.",
    "sequences_idle": "Cached branches that no request uses.",
    "cells_parked": "Tokens of branches parked beside the KV cache.",
    "host_bytes": "KV memory kept in RAM.",
    "stored": "Pieces of KV memory kept in RAM or on disk.",
}


class _Stats(Collector):
    def __init__(self, stats: Mapping[str, EngineStats]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"runner_{name}", text, labels=["model"])
            for model, stats in self._stats.items():
                counter.add_metric([model], getattr(stats, name))
            yield counter
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"runner_{name}", text, labels=["model"])
            for model, stats in self._stats.items():
                gauge.add_metric([model], getattr(stats, name))
            yield gauge


def metrics_text(stats: Mapping[str, EngineStats]) -> bytes:
    """One exposition of all counters and gauges, labelled by model."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Stats(stats))
    return generate_latest(registry)
