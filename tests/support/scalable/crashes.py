"""Runs of operations on a layout in which a leader, a broker or both are gone after some step.

A step is a proposal, a commit, or a call of a broker that is sent or has taken effect. Writers
publish by some keys all the while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nextgen.kernel.errors import MetadataError, NotLeader, Refused, Unavailable
from nextgen.kernel.limits.scalable import PRUNE_EXAMINED_MS_MIN
from nextgen.kernel.routing.names import parse_topic
from nextgen.replication.ports import Entry, Record
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from protos.nextgen.v1.shard_service_pb2 import DrainedMark
from shards.domain.scalable.commands import MarkDrained
from shards.domain.scalable.state import ScalableTopic
from shards.domain.scalable.vocabulary import SubscriptionPhase
from shards.ports import SegmentUnit
from shards.scalable.topic_decisions import TopicDecisions
from tests.support.scalable.shard import NAME, ScalableShard, endpoint_of, in_scalable_shard
from tests.support.shards.harness import SHARD

KEYS = (0x0000, 0x7FFF, 0x8000, 0xFFFF)
"""Hashes of the writers' keys: at the ends of what is split, merged and made."""

BACK_AFTER_S = 0.5
"""How long a leader or a broker is gone."""

LATE_S = 1.5
"""How late a call may take effect whose sender is gone."""

DEPOSED_S = 2.0
"""How long a leader goes on while another one leads."""

WRITE_EVERY_S = 0.1

GO_ON_S_MAX = 5.0
"""From the return of leader and broker to the new layout."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What is done to a topic that begins with ``begins_with`` segments."""

    kind: str
    parents: tuple[int, ...]
    begins_with: int
    buckets: int = 0

    @property
    def is_migration(self) -> bool:
        """Whether it begins with a classic topic, of as many partitions."""
        return self.kind == "migrate"


SPLIT = Operation("split", (0,), 1)
MERGE = Operation("merge", (0, 1), 2)
REBUCKET = Operation("rebucket", (0,), 1, buckets=2)
MIGRATE = Operation("migrate", (0, 1), 2)


@dataclass(slots=True)
class Crash:
    """Who is gone at which step, counted from 0. ``is_late``: a call that a leader sent then takes
    effect later all the same. ``deposed`` among the victims: the leader goes on, while another one
    leads."""

    at: int
    victims: frozenset[str]
    is_late: bool = False
    steps: list[str] = field(default_factory=list)
    """What has happened, in order."""

    gone_at: str = ""
    """The step behind which somebody was gone, "" if there were fewer."""

    went_on: int = 0
    """What a deposed leader proposed while another one led."""

    back_s: float = 0.0
    took_s: float = 0.0
    """Between the return of the process that was gone and the new layout."""


def run_operation(directory: Path, operation: Operation, crash: Crash) -> None:
    """Run ``operation`` with ``crash`` and check that it ended as it must."""

    async def story(shard: ScalableShard) -> None:
        run = _Run(shard, operation, crash)
        await run.carry_out()

    begins_with = operation.begins_with
    classic = begins_with if operation.is_migration else None
    in_scalable_shard(directory, story, segments=begins_with, brokers=2, classic=classic)


def run_prune(directory: Path, crash: Crash) -> None:
    """Prune a drained segment, with ``crash``, and check that its messages went, and no others."""

    async def story(shard: ScalableShard) -> None:
        await _PruneRun(shard, SPLIT, crash).carry_out()

    in_scalable_shard(directory, story, segments=1, brokers=2)


def run_deletion(directory: Path, crash: Crash) -> None:
    """Delete a subscription that has drained a sealed segment and create it again, with ``crash``,
    and check that what was reported before counts for nothing."""

    async def story(shard: ScalableShard) -> None:
        await _DeletionRun(shard, SPLIT, crash).carry_out()

    in_scalable_shard(directory, story, segments=1, brokers=2)


class _Run:
    epochs = (0, 1)
    """Of the layout, before the operation and behind it."""

    def __init__(self, shard: ScalableShard, operation: Operation, crash: Crash) -> None:
        self.shard = shard
        self.operation = operation
        self.crash = crash
        self.acked: dict[int, int] = dict.fromkeys(KEYS, -1)
        """The last number of each key that was acknowledged."""
        self._is_watching = False
        self._tasks: list[asyncio.Task[Any]] = []

    async def carry_out(self) -> None:
        shard, operation = self.shard, self.operation
        if operation.is_migration:
            for number in operation.parents:
                shard.segments.ledger(f"p{number}").cursors["s"] = 0
        else:
            await shard.subscribe("s")
        writers = [asyncio.create_task(self._write(key)) for key in KEYS]
        await asyncio.sleep(0.1)
        self._watch()
        if operation.is_migration:
            migrated = await shard.migrate()
            done_s = _now()
            assert not migrated.rejection_code, migrated
        else:
            changing = asyncio.create_task(
                shard.change(operation.kind, *operation.parents, buckets=operation.buckets)
            )
            await asyncio.sleep(0)
            subscribed = asyncio.create_task(shard.subscribe("late"))
            result = await changing
            done_s = _now()
            assert not result.rejection_code, result
            assert not (await subscribed).rejection_code
        self._is_watching = False
        await asyncio.gather(*self._tasks)
        self.check_moment(shard.topic)
        self.crash.took_s = done_s - self.crash.back_s
        assert self.crash.took_s <= GO_ON_S_MAX
        before = dict(self.acked)
        await asyncio.sleep(0.5)
        assert all(self.acked[key] > before[key] for key in KEYS), "a range has no home"
        for writer in writers:
            writer.cancel()
        self._check_end()

    # Crashing ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._watch_log()
        self.shard.segments.on_step = self._called
        self._is_watching = True
        self.crash.back_s = _now()

    def _watch_log(self) -> None:
        log, propose = self.shard.harness.log, self.shard.harness.log.propose

        def proposed(record: Record) -> Any:
            if not record.events:
                return propose(record)
            if log is not self.shard.harness.log:
                self.crash.went_on += 1
                return propose(record)
            self._step("a proposal", None)
            if not log.is_leader:
                raise NotLeader(SHARD)
            return propose(record)

        log.propose = proposed  # type: ignore[method-assign]
        log.on_commit(self._committed)

    def _committed(self, entries: Sequence[Entry]) -> None:
        if any(record.events for entry in entries for record in entry.records):
            asyncio.get_running_loop().call_soon(self._after_commit)

    def _after_commit(self) -> None:
        self.check_moment(self.shard.topic)
        self._step("a commit", None)

    def _called(self, step: str, unit: SegmentUnit, effect: Any) -> None:
        if step == "seal p1 is sent":
            # A classic consumer comes after its subscriptions were looked at for the first time.
            self.shard.segments.ledger("p1").cursors.setdefault("late", 0)
        if self._step(step, unit) and self.crash.is_late and step.endswith("is sent"):

            async def take_effect() -> None:
                await asyncio.sleep(LATE_S)
                try:
                    effect()
                except Refused:
                    return

            self._tasks.append(asyncio.create_task(take_effect()))
        if step.endswith("is sent") and not self.shard.harness.log.is_leader:
            # The process that was about to send it is gone.
            raise NotLeader(SHARD)

    def _step(self, what: str, unit: SegmentUnit | None) -> bool:
        """Note a step; return whether this is the one behind which somebody is gone."""
        if not self._is_watching:
            return False
        self.crash.steps.append(what)
        if len(self.crash.steps) != self.crash.at + 1:
            return False
        self.crash.gone_at = what
        broker_id = unit.endpoint.partition(":")[0] if unit else self._parent_owner()
        if self.crash.victims != {"deposed"}:
            self._tasks.append(asyncio.create_task(self._come_back(broker_id)))
        if "broker" in self.crash.victims:
            self.shard.stop_broker(broker_id)
        if "leader" in self.crash.victims:
            self.shard.stop_leader()
        if "deposed" in self.crash.victims:
            self._tasks.append(asyncio.create_task(self._depose()))
        return True

    async def _depose(self) -> None:
        end = self.shard.depose_leader()
        self._watch_log()
        await self.shard.connect_brokers()
        self.crash.back_s = _now()
        await asyncio.sleep(DEPOSED_S)
        end()

    def _parent_owner(self) -> str:
        kind = "p" if self.operation.is_migration else "s"
        return self.shard.owner(f"{kind}{self.operation.parents[0]}") or "broker-1"

    async def _come_back(self, broker_id: str) -> None:
        await asyncio.sleep(BACK_AFTER_S)
        if "leader" in self.crash.victims:
            await self.shard.start_leader()
        if endpoint_of(broker_id) in self.shard.segments.down:
            await self.shard.start_broker(broker_id)
        self.crash.back_s = _now()

    # Writing ----------------------------------------------------------------------------------

    async def _write(self, key: int) -> None:
        topic = parse_topic(NAME)
        number = 0
        while True:
            layout = self.shard.topic
            (segment,) = [each for each in layout.active if each.hash_start <= key <= each.hash_end]
            name = segment.name_in(topic)
            try:
                (answer,) = await self.shard.harness.lookup(name, timeout_ms=500)
                if answer.rejection_code:
                    raise Unavailable(answer.message)
                unit = SegmentUnit(
                    name, answer.topic_id, segment.unit.text, answer.epoch, answer.broker_grpc
                )
                await self.shard.segments.publish(unit, (key, number))
            except MetadataError:
                await asyncio.sleep(0.02)
                continue
            self.check_cursors(layout, segment.unit.text)
            self.acked[key] = number
            number += 1
            await asyncio.sleep(WRITE_EVERY_S)

    # Checks -----------------------------------------------------------------------------------

    def check_cursors(self, layout: ScalableTopic, unit: str) -> None:
        """Check that each live subscription has a cursor where a message was published."""
        live = {
            each.name
            for each in layout.subscriptions.values()
            if each.phase is SubscriptionPhase.LIVE
        }
        cursors = self.shard.segments.ledgers[unit].cursors
        assert live <= cursors.keys(), f"{unit} has a message, {live - cursors.keys()} no cursor"

    def check_moment(self, topic: ScalableTopic) -> None:
        """Check what holds after each commit."""
        start = 0
        for segment in topic.active:
            assert segment.hash_start == start, "the active segments do not tile the range"
            start = segment.hash_end + 1
        assert start == 0x10000
        if topic.operation is None:
            ledgers = self.shard.segments.ledgers
            orphans = [
                each.unit.text
                for each in topic.active
                if each.unit.text in ledgers and ledgers[each.unit.text].is_terminated
            ]
            assert not orphans, f"{orphans} are active and terminated"
            assert topic.epoch in self.epochs

    def _check_end(self) -> None:
        topic = self.shard.topic
        assert (topic.epoch, topic.operation, topic.last_operation_id) == (1, None, 1)
        ledgers = self.shard.segments.ledgers
        for segment in topic.segments.values():
            ledger = ledgers[segment.unit.text]
            assert ledger.is_terminated is segment.is_sealed
            if segment.is_sealed:
                assert segment.end is not None
                assert segment.end.entry_id == len(ledger.entries) - 1
            elif segment.created_at_epoch:
                assert ledger.cursors == {"s": 0, "late": 0}
        phases = {each.phase for each in topic.subscriptions.values()}
        assert (list(topic.subscriptions), phases) == (["late", "s"], {SubscriptionPhase.LIVE})
        in_order = sorted(topic.segments)
        for key in KEYS:
            numbers = [
                number
                for segment_id in in_order
                for of_key, number in ledgers[topic.segments[segment_id].unit.text].entries
                if of_key == key
            ]
            first = list(dict.fromkeys(numbers))
            assert first == list(range(len(first))), f"key {key:#x} is out of order"
            assert len(first) > self.acked[key], f"a message of key {key:#x} is lost"


class _PruneRun(_Run):
    """The segment 0 was split; what is watched begins with the mark that it is drained."""

    epochs = (1, 2)

    async def carry_out(self) -> None:
        shard = self.shard
        shard.segments.retention = (0, 0)
        await shard.subscribe("s")
        writers = [asyncio.create_task(self._write(key)) for key in KEYS]
        await asyncio.sleep(0.1)
        await shard.change("split", 0)
        await asyncio.sleep(0.1)
        kept = list(shard.segments.ledgers["s0"].entries)
        shard.segments.ledgers["s0"].cursors["s"] = len(kept)
        self._watch()
        await self._drain()
        while 0 in (topic := shard.topic).segments or topic.removals:
            self._check_removed(topic)
            await asyncio.sleep(0.01)
        self.crash.took_s = _now() - self.crash.back_s
        assert self.crash.took_s <= PRUNE_EXAMINED_MS_MIN / 1_000 + GO_ON_S_MAX
        self._is_watching = False
        await asyncio.gather(*self._tasks)
        before = dict(self.acked)
        await asyncio.sleep(0.5)
        assert all(self.acked[key] > before[key] for key in KEYS), "a range has no home"
        for writer in writers:
            writer.cancel()
        self._check_pruned(kept)

    async def _drain(self) -> None:
        """Note that the segment is drained, as its owner's report does, until that is committed."""
        while (
            0 in (topic := self.shard.topic).segments and 0 not in topic.subscriptions["s"].drained
        ):
            try:
                decisions = TopicDecisions(self.shard.harness.leader.state, NAME)
                await decisions.decide(topic.topic_id, MarkDrained("s", 0))
            except MetadataError:
                await asyncio.sleep(0.02)

    def _check_removed(self, topic: ScalableTopic) -> None:
        assert 0 not in topic.segments or not self.shard.segments.ledgers["s0"].is_removed

    def _check_pruned(self, kept: Sequence[tuple[int, int]]) -> None:
        topic = self.shard.topic
        assert (topic.epoch, sorted(topic.segments), topic.removals) == (2, [1, 2], ())
        ledgers = self.shard.segments.ledgers
        assert [ledgers[each].is_removed for each in ("s0", "s1", "s2")] == [True, False, False]
        assert not self.shard.owner("s0")
        for key in KEYS:
            numbers = [
                number
                for entries in (kept, ledgers["s1"].entries, ledgers["s2"].entries)
                for of_key, number in entries
                if of_key == key
            ]
            first = list(dict.fromkeys(numbers))
            assert first == list(range(len(first))), f"key {key:#x} is out of order"
            assert len(first) > self.acked[key], f"a message of key {key:#x} is lost"


class _DeletionRun(_Run):
    """The segment 0 was split. Whoever opens it to drop the cursor reports it drained, and all
    these reports arrive when the subscription was created again."""

    epochs = (1,)

    def __init__(self, shard: ScalableShard, operation: Operation, crash: Crash) -> None:
        super().__init__(shard, operation, crash)
        self._reports: list[DrainedMark] = []

    async def carry_out(self) -> None:
        shard = self.shard
        await shard.subscribe("s")
        await shard.change("split", 0)
        self._watch()
        deleted = await shard.unsubscribe("s")
        assert not deleted.rejection_code, deleted
        created = await shard.subscribe("s")
        assert not created.rejection_code, created
        self._is_watching = False
        await asyncio.gather(*self._tasks)
        assert self._reports
        await shard.harness.leader.drained_marks.mark(self._reports)
        topic = shard.topic
        assert topic.subscriptions["s"].drained == frozenset()
        cursors = [shard.segments.ledgers[each].cursors for each in ("s0", "s1", "s2")]
        assert cursors == [{}, {"s": 0}, {"s": 0}]

    def _called(self, step: str, unit: SegmentUnit, effect: Any) -> None:
        if step == "drop s0 is sent" and "s" in self.shard.segments.ledgers["s0"].cursors:
            owner = self.shard.harness.brokers[unit.endpoint.partition(":")[0]]
            opened = UnitAssignment(
                topic_id=unit.topic_id,
                unit=unit.unit,
                name=unit.name,
                epoch=unit.epoch,
                session_id=owner.session_id,
            )
            self._reports.append(DrainedMark(unit=opened, subscription="s"))
        super()._called(step, unit, effect)


def _now() -> float:
    return asyncio.get_running_loop().time()
