"""How often clients proved their role, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from nextgen.runtime.security.authentication.authenticator import (
    METHODS,
    OTHER_METHOD,
    OUTCOMES,
    counted,
)


def authentications(counts: Mapping[str, int]) -> Metric:
    """Return the metric made of an authenticator's counts, or of several ones' together."""
    family = CounterMetricFamily(
        "nextgen_authentications",
        "Proofs of clients that were checked, by method and outcome",
        labels=["kind", "outcome"],
    )
    for method in (*METHODS, OTHER_METHOD):
        for outcome in OUTCOMES:
            family.add_metric([method, outcome], counts.get(counted(method, outcome), 0))
    return family
