"""The status of this discovery node, for people and load generators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from discovery.ports import Directory
from discovery.service.report import Report, as_map
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.discovery_service_pb2 import (
    GetClusterRequest,
    GetCountersRequest,
    GetCountersResponse,
)


class StatusService:
    """Answers ``GetCluster`` from memory, ``GetCounters`` from all processes of this node.

    ``report`` returns the numbers of the moment.
    """

    def __init__(self, directory: Directory, report: Callable[[], Awaitable[Report]]) -> None:
        self._directory = directory
        self._report = report

    async def cluster(self, _request: GetClusterRequest, _timeout_ms: int) -> ClusterUpdate:
        return self._directory.view.to_update()

    async def counters(self, _request: GetCountersRequest, _timeout_ms: int) -> GetCountersResponse:
        return GetCountersResponse(counters=as_map(await self._report()))
