"""Watches through discovery: changes in order, over any discovery nodes.

    connect ─▶ behind the last token ─▶ changes ─▶ the node ends, or the stream ─┐
       ▲───────── 20 to 500 ms, the next discovery node ◀────────────────────────┘

Each change of each shard is delivered once and in order; where that is impossible, a RESET and a
snapshot take the place of the missing changes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from nextgen.client.discovery.nodes import SERVICE, DiscoveryNodes
from nextgen.client.model import cluster_of
from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.watch_model import (
    Change,
    ChangeKind,
    ShardMap,
    happened,
    parse_token,
    present,
    renamed,
    token_of,
)
from nextgen.client.wire.errors import error_of_rpc, from_detail
from nextgen.kernel.errors import (
    ConnectionLost,
    Indefinite,
    InvalidRequest,
    MetadataError,
    NotLeader,
    Overloaded,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.limits.stream import WATCH_NAMES_MAX
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.kernel.routing.slots import SlotTable
from nextgen.runtime.security.node_identity import NodeRole
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.discovery_service_pb2 import ShardPosition, WatchRequest, WatchUpdate

_RETRIED = (Indefinite, NotLeader, Overloaded, StaleShardMap, Unavailable)
_BACKOFF_MS_MIN = 20
_BACKOFF_MS_MAX = 500


async def watch_changes(
    nodes: DiscoveryNodes,
    method: str,
    *,
    prefix: str,
    names: Sequence[str],
    resume: str,
    without_snapshot: bool,
    timeout_ms: int,
) -> AsyncGenerator[Change[Any]]:
    """Yield the changes that ``method`` of discovery delivers; see ``Client.watch_topics``."""
    if len(names) > WATCH_NAMES_MAX:
        raise InvalidRequest(f"{len(names)} names, a watch has at most {WATCH_NAMES_MAX}")
    place = _Place(parse_token(resume), _wants(prefix, names))
    request = WatchRequest(prefix=prefix, names=names)

    def next_request() -> WatchRequest:
        resumed = getattr(request, "from")
        del resumed[:]
        resumed.extend(
            ShardPosition(shard_id=shard_id, position=position)
            for shard_id, position in place.positions.items()
        )
        # After a RESET the caller needs the snapshot, also if a reconnect came in between.
        request.without_snapshot = without_snapshot and not place.in_snapshot
        return request

    async with aclosing(updates_of(nodes, method, next_request, timeout_ms)) as updates:
        async for update in updates:
            for change in place.changes(update):
                yield change


async def watch_shard_map(nodes: DiscoveryNodes, *, timeout_ms: int) -> AsyncGenerator[ShardMap]:
    """Yield the shard map with its leaders, and again whenever that changes.

    A later one never has a lower version, nor a leader of a lower term.
    """
    known = ClusterUpdate(full=True)
    leaders: dict[int, LeaderReport] = {}
    slots: Counter[int] = Counter()
    async with aclosing(updates_of(nodes, "WatchShardMap", WatchRequest, timeout_ms)) as updates:
        async for update in updates:
            newer = [
                leader
                for leader in update.leaders
                if leader.shard_id not in leaders or leader.term > leaders[leader.shard_id].term
            ]
            is_map_newer = (
                update.HasField("shard_map") and update.shard_map.version > known.shard_map.version
            )
            if not newer and not is_map_newer:
                continue  # Another node repeated events that were delivered already.
            leaders.update((leader.shard_id, leader) for leader in newer)
            if is_map_newer:
                known.shard_map.CopyFrom(update.shard_map)
                table = SlotTable.from_bytes(known.shard_map.version, known.shard_map.slot_owners)
                slots = Counter(table.owners)
            del known.leaders[:]
            known.leaders.extend(leaders.values())
            state = cluster_of(known, slots)
            yield ShardMap(state.shard_map_version, state.shards)


class _Place:
    """The position of a watch in each shard; turns its updates into changes."""

    def __init__(self, positions: dict[int, int], wants: Callable[[str], bool]) -> None:
        """``wants``: whether a topic of this name is watched."""
        self.positions = positions
        self._wants = wants
        self.in_snapshot: set[int] = set()
        """Shards that were reset and whose snapshot is not complete."""
        self._delivered = set(positions)
        """Shards of which the caller has objects or positions: only these need a RESET."""
        self._token = token_of(positions)

    def changes(self, update: WatchUpdate) -> list[Change[Any]]:
        """Return the changes in ``update``, and move the watch to the update's positions."""
        shard_id = update.shard_id
        changes: list[Change[Any]] = []
        if update.reset:
            self.in_snapshot.add(shard_id)
            self.positions.pop(shard_id, None)
            self._token = token_of(self.positions)
            if shard_id in self._delivered:
                changes.append(Change(ChangeKind.RESET, self._token, shard_id))
        for item in update.items:
            self._delivered.add(shard_id)
            _append(changes, present(item, shard_id, self._token))
        for event in update.events:
            if event.position > self.positions.get(shard_id, 0):
                self._delivered.add(shard_id)
                before = self._token
                self._move(shard_id, event.position)
                if event.HasField("topic_renamed"):
                    changes += renamed(event, shard_id, before, self._token, self._wants)
                else:
                    _append(changes, happened(event, shard_id, self._token))
        has_moved = self._move_to(update)
        if update.snapshot_complete:
            self.in_snapshot.discard(shard_id)
            position = self.positions.get(shard_id, 0)
            kind = ChangeKind.SNAPSHOT_COMPLETE
            changes.append(Change(kind, self._token, shard_id, position=position))
        elif has_moved and not changes:
            changes.append(Change(ChangeKind.PROGRESS, self._token))
        return changes

    def _move_to(self, update: WatchUpdate) -> bool:
        has_moved = False
        for place in update.positions:
            if place.position > self.positions.get(place.shard_id, 0):
                self._delivered.add(place.shard_id)
                self._move(place.shard_id, place.position)
                has_moved = True
        return has_moved

    def _move(self, shard_id: int, position: int) -> None:
        self.positions[shard_id] = position
        self._token = token_of(self.positions)


def _wants(prefix: str, names: Sequence[str]) -> Callable[[str], bool]:
    """Return whether a watch is about the topic of a canonical name.

    A name that is malformed is refused where the watch begins.
    """
    if not names:
        return lambda name: name.startswith(prefix)
    wanted: set[str] = set()
    for name in names:
        with suppress(InvalidName):
            wanted.add(parse_topic(name).text)
    return wanted.__contains__


def _append(changes: list[Change[Any]], change: Change[Any] | None) -> None:
    # An event of a type that this release does not know concerns nothing that it can watch.
    if change is not None:
        changes.append(change)


async def updates_of(
    nodes: DiscoveryNodes, method: str, next_request: Any, timeout_ms: int
) -> AsyncGenerator[WatchUpdate]:
    """Yield the updates of one stream after the other, each begun with ``next_request()``.

    Raises:
        MetadataError: The request is invalid, or no node served the watch within ``timeout_ms``.
    """
    loop = asyncio.get_running_loop()
    backoff_ms = _BACKOFF_MS_MIN
    failing_since = loop.time()
    was_heard = False
    while True:
        endpoint = nodes.endpoint
        try:
            async with aclosing(_stream(endpoint, method, next_request())) as stream:
                async for update in stream:
                    was_heard = True
                    backoff_ms, failing_since = _BACKOFF_MS_MIN, 0.0
                    yield update
            error: MetadataError = ConnectionLost(f"{endpoint} ended the watch")
        except MetadataError as failure:
            error = failure
        failing_since = failing_since or loop.time()
        is_patient = isinstance(error, _RETRIED)
        is_late = (loop.time() - failing_since) * 1_000 > timeout_ms
        # A request that was served once is valid: a node that refuses it is behind, for a moment.
        if (is_patient and not was_heard and is_late) or (
            not is_patient and (not was_heard or is_late)
        ):
            raise error
        nodes.fail_over(endpoint)
        await asyncio.sleep(backoff_ms * random.uniform(0.5, 1.0) / 1_000)
        backoff_ms = min(backoff_ms * 2, _BACKOFF_MS_MAX)


async def _stream(endpoint: str, method: str, request: WatchRequest) -> AsyncGenerator[WatchUpdate]:
    # A connection of its own: a slow reader must not hold up other calls.
    channel = open_channel(endpoint, NodeRole.DISCOVERY)
    try:
        await wait_connected(channel, endpoint)
        watch: Any = channel.unary_stream(
            SERVICE + method,
            request_serializer=WatchRequest.SerializeToString,
            response_deserializer=WatchUpdate.FromString,
        )
        call = watch(request)
        try:
            while True:
                update = await call.read()
                if not isinstance(update, WatchUpdate):
                    return
                if update.HasField("error"):
                    raise from_detail(update.error)
                yield update
        finally:
            call.cancel()
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
    except (asyncio.InvalidStateError, DecodeError) as error:
        raise ConnectionLost(f"the watch at {endpoint} broke: {error!r}") from error
    finally:
        await close_channel(channel)
