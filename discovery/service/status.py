"""What this discovery node knows and has done, for people and load generators."""

from __future__ import annotations

from discovery.domain.answer_cache import AnswerCache
from discovery.ports import Directory
from discovery.service.counters import DiscoveryCounters
from nextgen.client.routing import RouterStatistics
from nextgen.kernel.limits import ROUTER_RETRIES_MAX
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.discovery_service_pb2 import (
    GetClusterRequest,
    GetCountersRequest,
    GetCountersResponse,
)


class StatusService:
    """Answers ``GetCluster`` and ``GetCounters`` from memory."""

    def __init__(
        self,
        directory: Directory,
        cache: AnswerCache,
        counters: DiscoveryCounters,
        routed: RouterStatistics,
    ) -> None:
        self._directory = directory
        self._cache = cache
        self._counters = counters
        self._routed = routed

    async def cluster(self, _request: GetClusterRequest, _timeout_ms: int) -> ClusterUpdate:
        return self._directory.view.to_update()

    async def counters(self, _request: GetCountersRequest, _timeout_ms: int) -> GetCountersResponse:
        return GetCountersResponse(counters=self.as_map())

    def as_map(self) -> dict[str, int]:
        """Return all counters by name."""
        routed = self._routed
        counters = self._counters.as_map()
        counters["cached_answers"] = len(self._cache)
        counters["routed_requests"] = routed.requests
        counters["routed_failures"] = routed.failures
        counters["retries"] = routed.retries_total
        counters["retries_p99"] = routed.retries_quantile(0.99)
        for retries in range(ROUTER_RETRIES_MAX + 1):
            counters[f"routed_with_{retries}_retries"] = routed.retries[retries]
        return counters
