"""Moves of slots in which somebody is gone, cut off, replaced or stopped after some step.

A step is a proposal or a commit about the move, or a message of it that is sent or has arrived.
Writers create, assign and delete topics in the slots all the while. ``python -m
tests.support.slots.crashes`` runs every step with every victim and prints what came of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from nextgen.kernel.errors import MetadataError, NotLeader
from nextgen.replication.ports import Entry, Record
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.domain.shard import SHARD_KEY, Shard
from shards.domain.slot_moves.steps import MovePhase
from shards.domain.slots.events import within
from shards.domain.states import StateKind
from shards.projections.rows import read_states
from shards.slots import slot_source
from tests.support.shards.world import names_in
from tests.support.slots import oracle
from tests.support.slots.world import (
    ARRIVES,
    NAMESPACES,
    RANGES,
    A,
    B,
    Fate,
    MovingShard,
    SlotWorld,
    in_slot_world,
    the_move,
)

VICTIMS = (
    "nobody",
    "A's leader",
    "A's leader, whose proposals survive",
    "B's leader",
    "B's leader, whose proposals survive",
    "both leaders",
    "A's leader, which goes on",
    "B's leader, which goes on",
    "majority of A",
    "majority of B",
    "cluster manager",
    "cluster manager, recovered without the move",
    "message, lost",
    "answer, lost",
    "message, once more later",
    "message, delayed",
    "operator stops it",
    "operator stops it, A's leader",
    "operator stops it, B's leader",
    "operator stops it, B's leader, which goes on",
    "operator stops it, message, once more later",
    "operator stops it, message, delayed",
)

PAGE = Path(__file__).parents[3] / "docs" / "flows" / "slot-moves.md"
_BEGIN, _END = "<!-- crashes -->", "<!-- end of crashes -->"

BACK_AFTER_S = 0.5
MAJORITY_AFTER_S = 3.0
DEPOSED_S = 4.0
LATE_S = 6.0
"""Behind the end of what a stop begins."""

END_S_MAX = 60.0
TOPICS = 24
ROWS_AT_ONCE = 7
"""So that there are several records of rows."""

_SLOT_EVENTS = frozenset(
    {
        "slots_adopted",
        "slots_incoming",
        "slot_rows_copied",
        "slots_released",
        "slots_refused",
        "slots_reclaimed",
        "slot_rows_removed",
    }
)


@dataclass(slots=True)
class Crash:
    """Who is gone at which step, counted from 0; -1: at none."""

    at: int
    victim: str = "nobody"
    seed: int = 0
    more: tuple[tuple[int, str], ...] = ()
    """Others, at other steps."""

    steps: list[str] = field(default_factory=list)
    gone_at: str = ""
    """The step at which somebody was gone, "" if there were fewer."""

    ended: str = ""
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)


def run_move(crash: Crash) -> Crash:
    """Run a move with ``crash``; what is wrong with its end is in ``faults``."""

    async def story(world: SlotWorld) -> None:
        await _Run(world, crash).carry_out()

    rows_max, slot_source.COPY_ROWS_MAX = slot_source.COPY_ROWS_MAX, ROWS_AT_ONCE
    try:
        in_slot_world(story)
    finally:
        slot_source.COPY_ROWS_MAX = rows_max
    return crash


class _Run:
    def __init__(self, world: SlotWorld, crash: Crash) -> None:
        self.world = world
        self.crash = crash
        self.random = random.Random(crash.seed)
        self._is_watching = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._exists: dict[str, bool | None] = {}
        """By topic: whether it exists after the last acknowledged create or delete of a writer."""
        self._is_ended = False

    async def carry_out(self) -> None:
        world = self.world
        await world.fill(TOPICS)
        names = [self._name_in_slots(number) for number in range(3)]
        writers = [asyncio.create_task(self._write(name)) for name in names]
        movers = [self._move_units(shard) for shard in (world.a, world.b)]
        writers += map(asyncio.create_task, movers)
        await asyncio.sleep(0.05)
        self._watch()
        world.manager.plan(the_move())
        started_s = _now()
        while not self._is_over() and _now() < started_s + END_S_MAX:
            await asyncio.sleep(0.05)
        self.crash.took_s = _now() - started_s
        move = world.manager.moves.get(1)
        # One that was lost before a log had anything of it is as good as taken back.
        self.crash.ended = "taken_back" if move is None else move.phase.value
        self._is_watching, self._is_ended = False, True
        await asyncio.gather(*self._tasks)
        # What was late has arrived, and the writers have found the shard that has the slots.
        is_late = any("later" in victim or "delayed" in victim for _, victim in self._strikes())
        await asyncio.sleep(LATE_S + 1.0 if is_late else 1.0)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await world.a.state.proposer.confirm()
        await world.b.state.proposer.confirm()
        self._check_end()

    def _name_in_slots(self, number: int) -> str:
        for name in names_in(self.world, A, NAMESPACES[number]):
            if oracle.is_within(StateKind.TOPIC, name, RANGES):
                return name
        raise AssertionError("there is no end of names")

    def _is_over(self) -> bool:
        move = self.world.manager.moves.get(1)
        if move is not None and move.phase not in (MovePhase.DONE, MovePhase.TAKEN_BACK):
            return False
        if not (self.world.a.is_led and self.world.b.is_led):
            return False
        mapped = self.world.manager.slots_of(B, self.world.table.ranges_of(B))
        if move is None and self.world.b.own.ranges != mapped:
            return False
        return not self.world.a.own.outgoing and not self.world.b.own.incoming

    # Steps ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        world = self.world
        world.on_step = self._step
        world.fate_of = self._fate
        world.on_new_log = self._watch_log
        for shard in (world.a, world.b):
            self._watch_log(shard)
        self._is_watching = True

    def _watch_log(self, shard: MovingShard) -> None:
        log, propose = shard.log, shard.log.propose
        who = "A" if shard.shard_id == A else "B"

        def proposed(record: Record) -> Any:
            what = _slot_events(record)
            if what and log is shard.log:
                self._step(f"{who} proposes {what}")
                if not log.is_leader:
                    raise NotLeader(shard.shard_id)
            return propose(record)

        def committed(entries: Sequence[Entry]) -> None:
            what = ", ".join(
                filter(None, (_slot_events(each) for entry in entries for each in entry.records))
            )
            if what and log is shard.log:
                asyncio.get_running_loop().call_soon(self._committed, f"{who} commits {what}")

        log.propose = proposed  # type: ignore[method-assign]
        log.on_commit(committed)

    def _committed(self, step: str) -> None:
        self._check_moment(step)
        self._step(step)

    def _step(self, step: str) -> None:
        if not self._is_watching:
            return
        index = len(self.crash.steps)
        self.crash.steps.append(step)
        for at, victim in self._strikes():
            if index == at:
                self.crash.gone_at = self.crash.gone_at or step
                self._strike(victim)

    def _strikes(self) -> tuple[tuple[int, str], ...]:
        return ((self.crash.at, self.crash.victim), *self.crash.more)

    def _fate(self, message: str) -> Fate:
        """Say what becomes of the message whose sending is the next step."""
        if not self._is_watching:
            return ARRIVES
        index = len(self.crash.steps)
        for at, victim in self._strikes():
            if index == at:
                if "message, lost" in victim:
                    return Fate(is_lost=True)
                if "answer, lost" in victim:
                    return Fate(answer_is_lost=True)
                if "delayed" in victim:
                    return Fate(is_lost=True, late_s=LATE_S)
                if "once more later" in victim:
                    return Fate(late_s=LATE_S)
        return ARRIVES

    def _strike(self, victim: str) -> None:
        a, b = self.world.a, self.world.b
        if "operator" in victim:
            self.world.manager.stop(1)
        survives = "survive" in victim
        if "goes on" in victim:
            self._later(self._depose(a if "A's" in victim else b))
        elif "both leaders" in victim:
            self._stop(a, survives)
            self._stop(b, survives)
        elif "A's leader" in victim:
            self._stop(a, survives)
        elif "B's leader" in victim:
            self._stop(b, survives)
        elif "majority of A" in victim:
            self._later(self._without_majority(a))
        elif "majority of B" in victim:
            self._later(self._without_majority(b))
        elif "recovered" in victim:
            self._recover_manager()
        elif "cluster manager" in victim:
            self._later(self._without_manager())

    def _later(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _stop(self, shard: MovingShard, survives: bool) -> None:
        if not shard.is_led:
            return
        shard.stop(pending_survives=survives)

        async def come_back() -> None:
            await asyncio.sleep(BACK_AFTER_S)
            shard.next_term()

        self._later(come_back())

    async def _depose(self, shard: MovingShard) -> None:
        if not shard.is_led:
            return
        end = shard.depose()
        await asyncio.sleep(DEPOSED_S)
        end()

    async def _without_majority(self, shard: MovingShard) -> None:
        log = shard.log
        log.hold_commits()
        await asyncio.sleep(MAJORITY_AFTER_S)
        if log.is_leader:
            log.release_commits()

    async def _without_manager(self) -> None:
        self.world.manager.is_away = True
        await asyncio.sleep(MAJORITY_AFTER_S)
        self.world.manager.is_away = False

    def _recover_manager(self) -> None:
        self.world.manager.recover()
        for shard in (self.world.a, self.world.b):
            shard.forget_moves()

    # Writing ----------------------------------------------------------------------------------

    async def _write(self, name: str) -> None:
        """Create, assign and delete one topic again and again."""
        world = self.world
        while True:
            pause_s = 0.03 if self._is_watching else 0.5
            await asyncio.sleep(pause_s * (0.3 + self.random.random()))
            exists = self._exists.get(name)
            self._exists[name] = None
            try:
                if not exists:
                    created = await world.create_topic(name)
                    code = created.topics[0].rejection_code
                    self._exists[name] = True if not code or "EXISTS" in code else None
                elif self.random.random() < 0.6:
                    self._exists[name] = True
                    world.assign(name, self.random.choice(("session-1", "session-2", "")))
                else:
                    deleted = await world.delete_topic(name)
                    code = deleted.rejection_code
                    if not code or code == "NOT_FOUND":
                        self._exists[name] = False
            except MetadataError:
                continue

    async def _move_units(self, shard: MovingShard) -> None:
        """Assign a unit of the slots again and again, as a leader's own work does that began when
        the slots were its shard's."""
        name = next(
            str(row[0])
            for row in self.world.a.view.dump()["topics"]
            if oracle.is_within(StateKind.TOPIC, str(row[0]), RANGES)
        )
        for number in itertools.count():
            await asyncio.sleep(0.1 if self._is_ended else 0.004)
            with contextlib.suppress(MetadataError):
                self.world.assign(name, f"session-{number % 2}" if number % 3 else "", shard)

    # Checks -----------------------------------------------------------------------------------

    def _check_moment(self, step: str) -> None:
        """Check what holds after each commit: no slot has two shards that decide about it."""
        for slot in (RANGES[0][0], RANGES[0][1], RANGES[1][0], RANGES[1][1]):
            owners = [
                shard.shard_id
                for shard in (self.world.a, self.world.b)
                if _committed_owner(shard, slot)
            ]
            if len(owners) > 1:
                self.crash.faults.append(f"slot {slot} has the owners {owners} after {step}")

    def _check_end(self) -> None:
        a, b, faults = self.world.a, self.world.b, self.crash.faults
        if self.crash.ended not in ("done", "taken_back"):
            waits = f"A {a.keeper!r}, B {b.keeper!r}"
            faults.append(f"the move is {self.crash.ended} after {END_S_MAX} s: {waits}")
            return
        found = oracle.history_of(a.log, b.log, 1)
        faults += found.faults
        faults += oracle.wrong_decisions(a.log, b.log, RANGES, found)
        moved = self.crash.ended == "done"
        if moved is not bool(found.adopted_at):
            faults.append(f"the move is {self.crash.ended}, B's log says {found}")
        owner, other = (b, a) if moved else (a, b)
        if not within(RANGES, owner.own.ranges):
            faults.append(f"the slots have no owner: {a.own.ranges}, {b.own.ranges}")
        expected = oracle.expected_rows(a.log, b.log, RANGES)
        faults += oracle.difference(expected, oracle.rows_of(owner.view, RANGES))
        faults += [f"{key} is left behind" for key in oracle.rows_of(other.view, RANGES)]
        for shard in (a, b):
            faults += oracle.wrong_sums(shard.view, shard.own.ranges)
            if oracle.refolded(shard.log) != shard.view.dump():
                faults.append(f"the log of shard {shard.shard_id} folds to another view")
        topics = {key for kind, key in expected if kind == "topic"}
        for name, exists in self._exists.items():
            if exists is not None and exists is not (name in topics):
                faults.append(f"{name} was acknowledged to exist: {exists}")


def _committed_owner(shard: MovingShard, slot: int) -> bool:
    own = read_states(shard.query, StateKind.SHARD, [SHARD_KEY])[SHARD_KEY]
    return isinstance(own, Shard) and any(first <= slot <= last for first, last in own.ranges)


def _slot_events(record: Record) -> str:
    events = DecidedCommand.FromString(record.payload).events
    names = [str(event.WhichOneof("payload")) for event in events]
    return "+".join(name for name in names if name in _SLOT_EVENTS)


def _now() -> float:
    return asyncio.get_running_loop().time()


# The table --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """What came of a move with one victim at each of its steps."""

    victim: str
    runs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    faults: list[str] = field(default_factory=list)


def crash_row(victim: str, every: int = 1) -> Row:
    """Run a move for each step, or one out of ``every``, at which ``victim`` is gone."""
    row = Row(victim)
    at = 0
    while True:
        crash = run_move(Crash(at, victim))
        if not crash.gone_at:
            break
        row.runs += 1
        row.ends[crash.ended] += 1
        row.slowest_s = max(row.slowest_s, crash.took_s)
        row.faults += [f"step {at}, {crash.gone_at}: {fault}" for fault in crash.faults]
        at += every
    return row


def table_of(rows: Iterable[Row]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| gone, cut off, replaced or stopped at a step | steps | moved | taken back | "
        "longest, s | faults |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.victim} | {row.runs} | {row.ends['done']} | {row.ends['taken_back']} | "
            f"{row.slowest_s:.1f} | {len(row.faults)} |"
        )
    return "\n".join(lines) + "\n"


def write_page(table: str) -> None:
    """Put the table into the page about moves."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, behind = rest.partition(_END)
    PAGE.write_text(f"{before}{_BEGIN}\n{table}{_END}{behind}")


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    rows = []
    for victim in VICTIMS[1:]:
        row = crash_row(victim)
        rows.append(row)
        print(table_of([row]).splitlines()[-1], flush=True)
        for fault in row.faults[:20]:
            print("   ", fault)
    print(table_of(rows))
    if "--write" in sys.argv:
        write_page(table_of(rows))
    sys.exit(any(row.faults for row in rows))


if __name__ == "__main__":
    main()
