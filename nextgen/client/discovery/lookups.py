"""Lookups of many topics at any discovery node that answers, until every one is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.client.discovery.own_writes import OwnWrites
from nextgen.client.model import TopicLocation, location_of
from nextgen.client.transport.retry_pause import retry_pause_ms
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Overloaded, Unavailable
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from protos.nextgen.v1.discovery_service_pb2 import (
    LookupRequest,
    LookupResponse,
    ShardPosition,
)

_RETRY_PAUSE_MS = 100


def lookup_request(
    topics: Sequence[str],
    *,
    fresh: bool,
    min_epochs: Mapping[str, int],
    positions: Sequence[ShardPosition] = (),
) -> LookupRequest:
    """Return the request for ``topics``; ``min_epochs`` may hold other topics too."""
    request = LookupRequest(topics=topics, fresh=fresh, positions=positions)
    if any(topic in min_epochs for topic in topics):
        request.min_epochs.extend(min_epochs.get(topic, 0) for topic in topics)
    return request


def check_heeded(request: LookupRequest, response: LookupResponse) -> None:
    """Check that the node honoured ``fresh`` and ``min_epochs`` of ``request``.

    Raises:
        Unavailable: The node is of an earlier release, which does not know them.
    """
    if (request.fresh or request.min_epochs) and not response.fresh:
        raise Unavailable("the discovery node is of an earlier release: it may answer from a cache")


async def look_up(
    nodes: DiscoveryNodes,
    topics: Sequence[str],
    *,
    timeout_ms: int,
    own_writes: OwnWrites,
    fresh: bool = False,
    min_epochs: Mapping[str, int] | None = None,
) -> list[TopicLocation]:
    """Return where each topic is served; see ``Client.lookup``.

    Raises:
        MetadataError: Some topics have no answer within the time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1_000
    locations: dict[int, TopicLocation] = {}
    unsettled = list(range(len(topics)))
    while True:
        remaining_ms = max(1, int((deadline - loop.time()) * 1_000))
        try:
            for start in range(0, len(unsettled), NAMES_PER_LOOKUP_MAX):
                places = unsettled[start : start + NAMES_PER_LOOKUP_MAX]
                request = lookup_request(
                    [topics[place] for place in places],
                    fresh=fresh,
                    min_epochs=min_epochs or {},
                    positions=own_writes.recent(),
                )
                for place, answer in zip(
                    places, await _ask(nodes, request, remaining_ms), strict=True
                ):
                    # DEADLINE_EXCEEDED of a short last attempt would hide the actual cause.
                    is_late = answer.rejection_code == DeadlineExceeded.reason
                    if not is_late or place not in locations:
                        locations[place] = answer
        except MetadataError:
            if len(locations) < len(topics):
                raise
            break  # All have an answer; retrying some of them did not help.
        unsettled = [place for place in unsettled if locations[place].retryable]
        if not unsettled:
            break
        pause_s = _pause_ms(locations[place] for place in unsettled) / 1_000
        if loop.time() + pause_s + _RETRY_PAUSE_MS / 1_000 >= deadline:
            break  # The present answers have the reasons; there is no time for another attempt.
        await asyncio.sleep(pause_s)
    return [locations[place] for place in range(len(topics))]


def _pause_ms(unsettled: Iterable[TopicLocation]) -> float:
    """Return the pause before these names are looked up again: the longest that a refusal names."""
    after_ms = max(location.retry_after_ms for location in unsettled)
    return max(_RETRY_PAUSE_MS, retry_pause_ms(Overloaded("", after_ms), 0))


async def _ask(
    nodes: DiscoveryNodes, request: LookupRequest, timeout_ms: int
) -> list[TopicLocation]:
    endpoint = nodes.endpoint
    response = await nodes.call("Lookup", request, LookupResponse, timeout_ms=timeout_ms)
    try:
        check_heeded(request, response)
    except Unavailable:
        nodes.fail_over(endpoint)
        raise
    return [location_of(answer) for answer in response.answers]
