"""Sends committed assignments to their broker managers and remembers which ones are synced.

An assignment is synced once its broker has acknowledged it. This is soft state: a new leader sends
each assignment again at the unit's next lookup, which changes nothing at the broker.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nextgen.kernel.errors import MetadataError, SessionExpired
from nextgen.kernel.limits.cluster import (
    ASSIGN_TIMEOUT_MS,
    ASSIGNMENTS_PER_REQUEST_MAX,
    DELIVERIES_BYTES_MAX,
    UNITS_SYNCED_MAX,
)
from nextgen.kernel.limits.placement import ANNOUNCE_MS_MAX, PREPARE_MS_MAX
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import AssignRequest, ReleaseRequest, TopicAssignment
from shards.domain.assignment import Assignment
from shards.domain.topic import Topic
from shards.ports import BrokerDirectory, BrokerManagers
from shards.wire.lookup import assignment_message, release_message

_ENDED_SESSIONS_MAX = 10_000
"""Sessions known to have ended before the directory has it: one per broker restart."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A unit, the committed assignment it has, and the position of that assignment's event."""

    topic: Topic
    assignment: Assignment
    position: int


Handed = tuple[Assignment, Assignment | None]
"""An assignment that ends, and the one behind it if there is one."""


class BrokerSync:
    """The way from one shard's leader to the brokers, for one term."""

    def __init__(self, shard_id: int, managers: BrokerManagers, directory: BrokerDirectory) -> None:
        self._shard_id = shard_id
        self._managers = managers
        self._directory = directory
        self._synced: dict[str, tuple[int, str]] = {}
        self._ended: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<BrokerSync shard={self._shard_id} synced={len(self._synced)}>"

    def is_synced(self, assignment: Assignment) -> bool:
        """Return whether its broker has acknowledged it, at this epoch, to this leader."""
        return self._synced.get(assignment.key) == (assignment.epoch, assignment.session_id)

    def has_ended(self, broker_id: str, session_id: str) -> bool:
        """Return whether a session has ended, by its manager's answer or by the directory."""
        return session_id in self._ended or self._directory.has_ended(broker_id, session_id)

    async def assign(
        self, placed: Sequence[Placed], *, take_over: bool = False
    ) -> MetadataError | None:
        """Send assignments of one session to its broker; None once it has acknowledged them all.

        With ``take_over`` the broker opens the units at once, as their clients are about to
        connect. Assignments that were synced before an error stay synced. A repetition changes
        nothing.
        """
        error = await self._send(placed, ASSIGN_TIMEOUT_MS, take_over=take_over)
        if error is None:
            for one in placed:
                self._note_synced(one.assignment)
        return error

    async def prepare(self, placed: Sequence[Placed]) -> MetadataError | None:
        """Have a session's broker prepare for units that may come; None once it has acknowledged.

        The broker does not own them yet.
        """
        return await self._send(placed, PREPARE_MS_MAX, prepare=True)

    async def release(
        self,
        moved: Sequence[Handed],
        *,
        timeout_ms: int = ASSIGN_TIMEOUT_MS,
        deleted: Container[str] = (),
    ) -> None:
        """Release units at their old owners; ``moved`` has the ended and the new assignments.

        ``deleted`` are ids of topics whose deletion is committed: their messages are removed.
        A session that has ended is left out. One failure does not keep the others from their
        release.

        Raises:
            MetadataError: An old owner was not reached. A repetition changes nothing.
        """
        for error in await self._release_all(moved, timeout_ms, announce=False, deleted=deleted):
            raise error

    async def announce(self, moved: Sequence[Handed]) -> None:
        """Announce to owners where their units will go. Best effort: failures are ignored."""
        await self._release_all(moved, ANNOUNCE_MS_MAX, announce=True)

    async def _send(
        self,
        placed: Sequence[Placed],
        timeout_ms: int,
        *,
        prepare: bool = False,
        take_over: bool = False,
    ) -> MetadataError | None:
        owner = placed[0].assignment
        messages = [
            assignment_message(one.topic, one.assignment, self._shard_id, take_over=take_over)
            for one in placed
        ]
        try:
            for chunk in _chunks(messages):
                request = AssignRequest(
                    broker_id=owner.broker_id,
                    session_id=owner.session_id,
                    assignments=() if prepare else chunk,
                    prepared=chunk if prepare else (),
                )
                await self._managers.assign(request, timeout_ms=timeout_ms)
        except SessionExpired as error:
            self._note_ended(owner.session_id)
            return error
        except MetadataError as error:
            return error
        return None

    async def _release_all(
        self,
        moved: Sequence[Handed],
        timeout_ms: int,
        *,
        announce: bool,
        deleted: Container[str] = (),
    ) -> list[MetadataError]:
        by_session: dict[str, list[Handed]] = {}
        for ended, successor in moved:
            by_session.setdefault(ended.session_id, []).append((ended, successor))
        results = await asyncio.gather(
            *(
                self._release_at(group, timeout_ms, announce=announce, deleted=deleted)
                for group in by_session.values()
            )
        )
        return [error for error in results if error is not None]

    async def _release_at(
        self,
        group: Sequence[Handed],
        timeout_ms: int,
        *,
        announce: bool,
        deleted: Container[str],
    ) -> MetadataError | None:
        owner = group[0][0]
        if self.has_ended(owner.broker_id, owner.session_id):
            return None
        releases = [
            release_message(
                ended,
                successor,
                self._broker_of(successor),
                is_deleted=ended.topic_id in deleted,
            )
            for ended, successor in group
        ]
        try:
            for start in range(0, len(releases), ASSIGNMENTS_PER_REQUEST_MAX):
                chunk = releases[start : start + ASSIGNMENTS_PER_REQUEST_MAX]
                request = ReleaseRequest(
                    broker_id=owner.broker_id,
                    session_id=owner.session_id,
                    releases=() if announce else chunk,
                    announced=chunk if announce else (),
                )
                await self._managers.release(request, timeout_ms=timeout_ms)
        except SessionExpired:
            self._note_ended(owner.session_id)
        except MetadataError as error:
            return error
        return None

    def _broker_of(self, assignment: Assignment | None) -> BrokerRecorded | None:
        return None if assignment is None else self._directory.session(assignment.session_id)

    def _note_synced(self, assignment: Assignment) -> None:
        key = assignment.key
        self._synced.pop(key, None)
        self._synced[key] = _shared(assignment.epoch, sys.intern(assignment.session_id))
        if len(self._synced) > UNITS_SYNCED_MAX:
            del self._synced[next(iter(self._synced))]

    def _note_ended(self, session_id: str) -> None:
        self._ended[session_id] = None
        if len(self._ended) > _ENDED_SESSIONS_MAX:
            del self._ended[next(iter(self._ended))]


@lru_cache(maxsize=1_024)
def _shared(epoch: int, session_id: str) -> tuple[int, str]:
    """Return the pair; nearly all units of a session have the same one."""
    return epoch, session_id


def _chunks(messages: Sequence[TopicAssignment]) -> Iterator[list[TopicAssignment]]:
    """Yield runs of messages that fit into one request, in number and in bytes."""
    chunk: list[TopicAssignment] = []
    size = 0
    for message in messages:
        message_size = message.ByteSize()
        is_full = len(chunk) == ASSIGNMENTS_PER_REQUEST_MAX
        if chunk and (is_full or size + message_size > DELIVERIES_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += message_size
    if chunk:
        yield chunk
