"""Finishes committed moves: the target has the unit, no cache names the old owner, and the old
owner has released it.

A step that fails is tried again in the background. A new leader finishes the moves that its
predecessor may have left unfinished; repeating a step changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from nextgen.kernel.errors import MetadataError, SessionExpired
from nextgen.kernel.events.generations import last_epoch_of_generation
from nextgen.kernel.governance.broker_kind import BrokerKind
from nextgen.kernel.limits.placement import TAKE_OVER_MS_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.replication.ports import PositionCompacted, ReplicatedLog
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT
from shards.assignment.broker_sync import BrokerSync, Placed
from shards.assignment.shard_units import ShardUnits
from shards.domain.assignment import Assignment
from shards.domain.renames.names import FormerName
from shards.domain.slot_moves.keys import slot_of_unit
from shards.domain.states import StateKind
from shards.moves.recent_moves import recent_moves
from shards.ports import BrokerDirectory
from shards.state.shard_state import ShardState
from shards.watches.effective_writes import EffectiveWrites

_ATTEMPTS_MAX = 8
_STAND_INS_MAX = 3
"""Brokers that are given one deleted unit, each because the one before it is gone."""

_PAUSE_SECONDS_MIN = 0.5
_PAUSE_SECONDS_MAX = 8.0
"""Some 40 s of attempts: by then an old owner that cannot be reached has lost its session."""

_RECOVER_AFTER_SECONDS = 0.25
"""The first requests of a term are served first; caches hold the old owner for longer than this."""

UNITS_RECOVERED_MAX = 10_000
"""Moves that a new leader finishes. Each costs one release for every live broker."""

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UnfinishedMove:
    """A committed move, and the sessions that may still hold the unit at an earlier epoch."""

    placed: Placed | None
    """The new assignment; None if the unit has no owner now."""
    position: int
    """The position of the event that ended the earlier assignment."""
    old_owners: tuple[Assignment, ...]
    is_deletion: bool = False
    """Whether it may be a deletion of the topic, so that its messages have to be removed."""


class MoveFinisher:
    """Finishes one shard's moves, for one term."""

    def __init__(
        self,
        shard_id: int,
        state: ShardState,
        units: ShardUnits,
        sync: BrokerSync,
        effective: EffectiveWrites,
        directory: BrokerDirectory,
    ) -> None:
        self._shard_id = shard_id
        self._state = state
        self._proposer = state.proposer
        self._units = units.reads
        self._tasks = units.tasks
        self._sync = sync
        self._effective = effective
        self._directory = directory
        self.on_recent: Callable[[Mapping[str, int], int], None] = lambda _moved, _from_ms: None
        """Called once, when the end of the log was read: see ``MovedUnits.restore``."""
        self._has_recovered = True
        self._unfinished: list[Sequence[Assignment]] = []
        """The old owners of what is being finished."""

    def is_finishing(self, is_of: Callable[[str], bool]) -> bool:
        """Return whether a unit of which ``is_of`` is true, by its topic's id, may have to be
        released yet."""
        return not self._has_recovered or any(
            is_of(owner.topic_id) for owners in self._unfinished for owner in owners
        )

    async def hand_over(self, group: Sequence[UnfinishedMove]) -> MetadataError | None:
        """Send the units of one target to it; None once it has acknowledged them all."""
        return await self._sync.assign([move.placed for move in group if move.placed is not None])

    async def release(self, moves: Sequence[UnfinishedMove]) -> None:
        """Wait until no cache names the old owners, release the units there, have the targets open.

        A target takes over even from an owner that cannot be reached: that owner is fenced.

        Raises:
            MetadataError: An old owner was not reached, or this replica does not lead any more.
        """
        if not moves:
            return
        deleted = await self._deleted(
            [owner for move in moves if move.is_deletion for owner in move.old_owners]
        )
        owners = [owner for move in moves for owner in move.old_owners]
        await self._effective.wait_assigned(
            max(move.position for move in moves),
            {(KIND_ASSIGNMENT, owner.name) for owner in owners},
            {slot for owner in owners if (slot := slot_of_unit(owner.topic_id)) is not None},
        )
        try:
            await self._sync.release(
                [
                    (
                        self._ended_for_good(owner, deleted),
                        None if move.placed is None else move.placed.assignment,
                    )
                    for move in moves
                    for owner in move.old_owners
                ],
                timeout_ms=TAKE_OVER_MS_MAX,
                deleted=deleted,
            )
        finally:
            await self._take_over([move.placed for move in moves if move.placed is not None])

    async def _take_over(self, placed: Sequence[Placed]) -> None:
        """Have the targets open the units now, rather than when the first client connects."""
        by_target: dict[str, list[Placed]] = {}
        for one in placed:
            by_target.setdefault(one.assignment.session_id, []).append(one)
        errors = await asyncio.gather(
            *(self._sync.assign(group, take_over=True) for group in by_target.values())
        )
        for error in errors:
            if error is not None:
                _logger.info("target did not open the units", shard=self._shard_id, why=str(error))

    def finish_later(self, moves: Sequence[UnfinishedMove]) -> None:
        """Retry ``moves`` in the background, until they are done or the attempts are used up."""
        if moves:
            self._run([owner for move in moves for owner in move.old_owners], self._finish(moves))

    def _run(self, owners: Sequence[Assignment], work: Coroutine[Any, Any, None]) -> None:
        async def watched() -> None:
            self._unfinished.append(owners)
            try:
                await work
            finally:
                self._unfinished.remove(owners)

        self._tasks.run(watched())

    def release_deleted(self, ended: Sequence[Assignment]) -> None:
        """Release units of deleted topics and have their messages removed, in the background.

        A unit without an owner has its messages removed by any live broker. It does not wait for
        caches: no client may be served a deleted topic.
        """
        if ended:
            self._run(ended, self._release_deleted(ended))

    def recover(self, log: ReplicatedLog) -> None:
        """Finish in the background the moves that a former leader may have left unfinished."""
        self._has_recovered = False
        self._tasks.run(self._recover(log))

    async def _release_deleted(self, ended: Sequence[Assignment]) -> None:
        pause = _PAUSE_SECONDS_MIN
        for _ in range(_ATTEMPTS_MAX):
            self._tasks.check_open()
            try:
                ended = await self._release_at_owners(ended)
            except MetadataError as error:
                self._tasks.check_open()
                _logger.info("deleted units not released yet", shard=self._shard_id, why=str(error))
            if not ended:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)
        _logger.warning("messages may be left", shard=self._shard_id, units=len(ended))

    async def _release_at_owners(self, ended: Sequence[Assignment]) -> Sequence[Assignment]:
        """Release units of deleted topics once; return those that no live broker has released.

        Raises:
            MetadataError: An owner was not reached. A repetition changes nothing.
        """
        return await self._remove_at_owners(ended, await self._deleted(ended))

    async def remove_units(self, ended: Sequence[Assignment]) -> Sequence[Assignment]:
        """Release removed units once; return those that no live broker has released.

        Their topic is there still: they are segments that left its layout. The caller MUST know
        that this is committed.

        Raises:
            MetadataError: An owner was not reached. A repetition changes nothing.
        """
        return await self._remove_at_owners(ended, frozenset(each.topic_id for each in ended))

    async def _remove_at_owners(
        self, ended: Sequence[Assignment], deleted: frozenset[str]
    ) -> Sequence[Assignment]:
        for _ in range(_STAND_INS_MAX):
            holders = [self._holder(each) for each in ended]
            owned = [
                (self._ended_for_good(each, deleted), None) for each in holders if each.is_assigned
            ]
            await self._sync.release(owned, deleted=deleted)
            ended = [
                each
                for each in holders
                if not each.is_assigned or self._sync.has_ended(each.broker_id, each.session_id)
            ]
            if not ended:
                break
        return ended

    def _ended_for_good(self, ended: Assignment, deleted: frozenset[str]) -> Assignment:
        """Return ``ended``, of a deleted topic in the last epoch of this leader's generation.

        Lost replicas may have given later epochs than this leader knows, but none of a later
        generation. In those the unit stays: a restored cluster has it again (ADR 0085).
        """
        if ended.topic_id not in deleted:
            return ended
        known = max(ended.epoch, self._state.least_epoch)
        return replace(ended, epoch=last_epoch_of_generation(known))

    def _holder(self, ended: Assignment) -> Assignment:
        """Return a unit of a deleted topic with the broker that is to remove its messages.

        That is its owner. If it had none, or the owner is gone, any live embedded broker can. Stock
        ones remove nothing: they are taken where nobody else lives. Without any it is returned
        without a broker.
        """
        if ended.is_assigned and not self._sync.has_ended(ended.broker_id, ended.session_id):
            return ended
        live = sorted(self._directory.live(), key=lambda each: each.kind != BrokerKind.EMBEDDED)
        if not live:
            return replace(ended, broker_id="", session_id="")
        return replace(ended, broker_id=live[0].broker_id, session_id=live[0].session_id)

    async def _deleted(self, ended: Sequence[Assignment]) -> frozenset[str]:
        """Return the ids of those topics whose deletion is certain.

        The units of a topic with very many of them end before the topic is deleted, and that last
        record may be lost: then the topic is there, perhaps by another name, and its messages MUST
        stay. A topic is not renamed while this leader finishes something about it.

        Raises:
            MetadataError: This replica does not lead any more.
        """
        if not ended:
            return frozenset()
        names = [parse_topic(each.name) for each in ended]
        loaded = self._units.load(names)
        deleted = frozenset(
            each.topic_id
            for each, (topic, _) in zip(ended, loaded, strict=True)
            if topic is None or topic.topic_id != each.topic_id
        )
        deleted -= self._renamed([name.base_text for name in names])
        # What was read may be a proposal that is lost.
        await self._proposer.confirm()
        return deleted

    def _renamed(self, names: Sequence[str]) -> frozenset[str]:
        """Return the ids of topics that had one of these names."""
        reads = self._state.reads
        if not reads.total(StateKind.FORMER_NAME):
            return frozenset()
        found = reads.load(StateKind.FORMER_NAME, names).values()
        return frozenset(each.topic_id for each in found if isinstance(each, FormerName))

    async def _finish(self, moves: Sequence[UnfinishedMove]) -> None:
        pause = _PAUSE_SECONDS_MIN
        for _ in range(_ATTEMPTS_MAX):
            moves = await self._attempt(moves)
            if not moves:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)
        _logger.warning("moves left to the epoch", shard=self._shard_id, units=len(moves))

    async def _attempt(self, moves: Sequence[UnfinishedMove]) -> Sequence[UnfinishedMove]:
        """Try once; return the moves that are still unfinished."""
        by_target: dict[str, list[UnfinishedMove]] = {}
        arrived: list[UnfinishedMove] = []
        for move in moves:
            if move.placed is None:
                arrived.append(move)
            else:
                by_target.setdefault(move.placed.assignment.session_id, []).append(move)
        waiting: list[UnfinishedMove] = []
        for group in by_target.values():
            error = await self.hand_over(group)
            # If the target died, the next lookup assigns the unit; the old owner must release it.
            is_settled = error is None or isinstance(error, SessionExpired)
            (arrived if is_settled else waiting).extend(group)
        try:
            await self.release(arrived)
        except MetadataError as error:
            self._tasks.check_open()
            _logger.info("old owners not released yet", shard=self._shard_id, why=str(error))
            return moves
        return waiting

    async def _recover(self, log: ReplicatedLog) -> None:
        try:
            await self._recover_recent(log)
        finally:
            self._has_recovered = True

    async def _recover_recent(self, log: ReplicatedLog) -> None:
        await asyncio.sleep(_RECOVER_AFTER_SECONDS)
        try:
            recent = await recent_moves(log)
        except PositionCompacted:
            # A snapshot has replaced these entries, so they are no longer recent.
            self.on_recent({}, self._state.now_ms())
            return
        known_from_ms = recent.known_from_ms
        self.on_recent(
            recent.evened_at_ms, self._state.now_ms() if known_from_ms is None else known_from_ms
        )
        self.release_deleted(recent.deleted_idle)
        names = [parse_topic(name) for name in list(recent.moved)[-UNITS_RECOVERED_MAX:]]
        position = self._proposer.position
        unfinished = [
            UnfinishedMove(None, position, self._holders(ended), is_deletion=True)
            for ended in recent.deleted[-UNITS_RECOVERED_MAX:]
        ]
        unfinished += [
            UnfinishedMove(
                Placed(topic, assignment, position) if assignment.is_assigned else None,
                position,
                others,
            )
            for topic, assignment in self._units.load(names)
            if topic is not None and assignment is not None and (others := self._others(assignment))
        ]
        if unfinished:
            # Some of these assignments may be proposals of this term. A broker must not get or
            # release a unit by one that is never committed.
            await self._proposer.confirm()
            _logger.info("finishing moves", shard=self._shard_id, units=len(unfinished))
            await self._finish(unfinished)

    def _others(self, assignment: Assignment) -> tuple[Assignment, ...]:
        """Return the assignment that each other live broker would hold as the old owner."""
        # An assignment that ended without a successor has the epoch that ended.
        ended = assignment.epoch - 1 if assignment.is_assigned else assignment.epoch
        return self._holders(replace(assignment, epoch=ended))

    def _holders(self, ended: Assignment) -> tuple[Assignment, ...]:
        """Return ``ended`` for each live broker other than its own session."""
        return tuple(
            replace(ended, broker_id=broker.broker_id, session_id=broker.session_id)
            for broker in self._directory.live()
            if broker.session_id != ended.session_id
        )
