"""Two views between which slots move are, together, one view that has everything.

Topics are renamed meanwhile, to names of either shard: their rows go by the slots in their ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import mint_id
from nextgen.kernel.routing.property_filter import property_filter
from nextgen.replication.view.database import driver_of
from nextgen.replication.view.digest import plus, scan
from shards.domain.assignment import TopicAssigned, TopicUnassigned
from shards.domain.broker_session import BrokerSessionEnded, BrokerSessionEstablished, Endpoints
from shards.domain.namespace import NamespaceCreated, NamespaceDeleted, NamespacePropertiesSet
from shards.domain.parent_gate import ParentKind
from shards.domain.renames.names import (
    FormerName,
    OldName,
    TopicNameFreed,
    TopicNamePointed,
    TopicRenamed,
)
from shards.domain.shard import SHARD_KEY, Shard, SlotsAdopted
from shards.domain.slot_moves.keys import MOVING_KINDS, slot_of_key, slot_of_state
from shards.domain.slots.events import (
    SCAN_DONE,
    CountedUnits,
    SlotKey,
    SlotRanges,
    SlotRow,
    SlotRowsCopied,
    SlotRowsRemoved,
    SlotsIncoming,
    SlotsReclaimed,
    SlotsRefused,
    SlotsReleased,
    has_slot,
    united,
    without,
)
from shards.domain.states import State, StateKind
from shards.domain.tenant import TenantCreated, TenantDeleted, TenantPropertiesSet
from shards.domain.topic import TopicCreated, TopicDeleted, TopicPropertiesSet
from shards.projections.evolution import changes_of
from shards.projections.fold import fold
from shards.projections.foreign import read_foreign
from shards.projections.reading import (
    child_ranges,
    count_names,
    has_key_within,
    prefix_range,
    read_keys,
    read_matching,
    read_names,
    read_page,
    read_sessions,
    read_units_of_session,
)
from shards.projections.rows import MAPPINGS, query_of, read_states
from shards.projections.tables import METADATA
from tests.support.shards.events import TIME_MS, entries_of, record_of
from tests.support.shards.world import MemoryView

TENANTS = tuple(f"tenant-{number}" for number in range(3))
NAMESPACES = tuple(f"{tenant}/ns" for tenant in TENANTS)
TOPICS = tuple(f"persistent://{ns}/t-{n}" for ns in NAMESPACES for n in range(3))
BROKERS = ("broker-1", "broker-2", "broker-3")
SESSIONS = ("s-1", "s-2")
ALL: SlotRanges = ((0, SLOT_COUNT - 1),)
EIGHTHS = tuple((start, start + 2047) for start in range(0, SLOT_COUNT, 2048))
EVERYTHING = prefix_range("")


def id_of(name: str, generation: int) -> str:
    return mint_id(slot_of(name.partition("://")[2] or name), generation.to_bytes(10, "big"))


class Site:
    """One shard's log and view. ``touched`` has what each event changed, and its slot, in order."""

    def __init__(self, ranges: SlotRanges) -> None:
        self.view = MemoryView()
        self.query = query_of(self.view.reader)
        self.digest = 0
        self.position = 0
        self.records: list[Any] = []
        self.touched: list[Change] = []
        self.apply(SlotsAdopted(ranges, 1))

    @property
    def own(self) -> Shard:
        own = read_states(self.query, StateKind.SHARD, (SHARD_KEY,))[SHARD_KEY]
        assert isinstance(own, Shard)
        return own

    def apply(self, *events: Any) -> None:
        """Commit one record, and check that the fold says what it does to the digest."""
        record = record_of(events)
        entries = entries_of(
            [[record]], from_index=len(self.records) + 1, from_position=self.position + 1
        )
        change = fold(self.view.reader(), entries)
        self.view.reader().commit()
        assert change is not None, "no name is created twice"
        self.digest = plus(self.digest, change)
        assert self.digest == scan(driver_of(self.view.reader()), METADATA)[0]
        self.records.append(record)
        self.position += len(events)
        for event in events:
            self.touched += changes_of(event)
            if isinstance(event, TopicDeleted):
                # Its epochs go with it.
                unit = f"{event.topic_id}/"
                slot = slot_of_key(StateKind.ASSIGNMENT, unit)
                self.touched.append((StateKind.ASSIGNMENT, unit, slot))

    def rows_of(self, kind: StateKind, slots: SlotRanges) -> list[SlotRow]:
        """Return the rows of ``kind`` in ``slots``, by key, whoever has the slots."""
        mapping = MAPPINGS[kind]
        rows = [(row[0], mapping.from_row(row)) for row in self.query(mapping.select)]
        found = [
            SlotRow(kind, key, state) for key, state in rows if _is_in(slots, kind, key, state)
        ]
        return sorted(found, key=lambda row: row.key)

    def states_of(
        self, keys: Sequence[tuple[StateKind, str]], slots: SlotRanges
    ) -> tuple[SlotRow, ...]:
        """Return what is under the keys, of the slots alone."""
        found = [(kind, key, self.state_of(kind, key)) for kind, key in dict.fromkeys(keys)]
        return tuple(
            SlotRow(kind, key, state if _is_in(slots, kind, key, state) else None)
            for kind, key, state in found
        )

    def state_of(self, kind: StateKind, key: str) -> Any:
        return read_states(self.query, kind, (key,))[key]

    def sums(self, kind: StateKind) -> Counter[str]:
        return Counter({row[0]: row[1] for row in self.query(MAPPINGS[kind].select)})

    def close(self) -> None:
        self.view.close()


Change = tuple[StateKind, str, int | None]


def _is_in(slots: SlotRanges, kind: StateKind, key: str, state: State | None = None) -> bool:
    slot = slot_of_state(kind, key, state)
    return slot is not None and has_slot(slots, slot)


def visible(site: Site) -> dict[str, Any]:
    """Return what every kind of read of a view gives, by what it is and its name."""
    query, found = site.query, {}
    foreign = read_foreign(query)
    for kind in (StateKind.TENANT, StateKind.NAMESPACE, StateKind.TOPIC):
        page = read_page(query, kind, (EVERYTHING,), after="", limit=100, foreign=foreign)
        names = [state.name for state in page]  # type: ignore[union-attr]
        found |= {f"{kind} {name}": state for name, state in zip(names, page, strict=True)}
        listed = read_names(query, kind, (EVERYTHING,), after="", limit=100, foreign=foreign)
        assert [name for name, _ in listed] == names
        assert read_keys(query, kind, EVERYTHING, foreign) == names
        count, _, after = count_names(query, kind, EVERYTHING, after="", limit=2, foreign=foreign)
        assert (count, after) == (min(2, len(names)), names[1] if len(names) >= 2 else "")
    matching, _ = read_matching(
        query,
        (EVERYTHING,),
        property_filter([("owner", "ops")]),
        after="",
        limit=100,
        scanned_max=100,
        foreign=foreign,
    )
    found |= {f"owned by ops {name}": partitions for name, partitions in matching}
    for session in SESSIONS:
        units = read_units_of_session(query, session, "", 100, foreign)
        found |= {f"unit of {session} {unit.key}": unit for unit in units}
        firsts = read_units_of_session(query, session, "", 1, foreign)
        assert firsts == units[:1]
    sessions = read_sessions(query, foreign)
    found |= {f"session {broker_id}": session for broker_id, session in sessions.items()}
    for kind, names in ((ParentKind.TENANT, TENANTS), (ParentKind.NAMESPACE, NAMESPACES)):
        for name in names:
            child_kind, ranges = child_ranges(kind, name)
            if any(has_key_within(query, child_kind, each, (), foreign) for each in ranges):
                found[f"children of {name}"] = True
    return found


class Cluster:
    """Shards 1 and 2, beside one that has everything."""

    def __init__(self) -> None:
        self.sites = {
            1: Site(EIGHTHS[:4] and united(EIGHTHS[:4], ())),
            2: Site(united(EIGHTHS[4:], ())),
        }
        self.whole = Site(ALL)
        self.generation = 0
        self.move_id = 0
        self.epochs: Counter[str] = Counter()
        self.frozen: SlotRanges = ()
        self.move: Iterator[None] | None = None

    def close(self) -> None:
        for site in (*self.sites.values(), self.whole):
            site.close()

    def decide(self, kind: StateKind, key: str, *events: Any) -> None:
        """Commit ``events`` about one state where its slot is, unless that is nowhere."""
        slot = slot_of_state(kind, key, self.whole.state_of(kind, key))
        assert slot is not None, "it is a kind that moves"
        if not has_slot(self.frozen, slot):
            self._owner(slot).apply(*events)
            self.whole.apply(*events)

    def _owner(self, slot: int) -> Site:
        (owner,) = [site for site in self.sites.values() if has_slot(site.own.ranges, slot)]
        return owner

    @property
    def now_ms(self) -> int:
        return TIME_MS + self.generation

    def leads(self, name: str) -> bool:
        """Return whether ``name`` is a former one that leads to a topic still."""
        former = self.whole.state_of(StateKind.FORMER_NAME, name)
        return former is not None and former.until_ms > self.now_ms

    def create_topic(self, name: str) -> None:
        """Create it where its name's slot is; what is known of its name there is over."""
        slot = slot_of(name.partition("://")[2])
        if has_slot(self.frozen, slot) or self.leads(name):
            return
        owner = self._owner(slot)
        known = [owner.state_of(kind, name) for kind in (StateKind.TOPIC_NAME, StateKind.TOPIC)]
        freed = {each.topic_id for each in known if each is not None}
        events = [
            *(TopicNameFreed(name, topic_id) for topic_id in sorted(freed)),
            TopicCreated(id_of(name, self.generation), name, 0, "ns-id", TIME_MS),
        ]
        owner.apply(*events)
        self.whole.apply(*events)

    def rename(self, name: str, new_name: str, grace_ms: int) -> None:
        """Rename a topic in its home, behind a pointer where the new name's slot is."""
        self.generation += 1
        topic = self.whole.state_of(StateKind.TOPIC, name)
        is_taken = self.whole.state_of(StateKind.TOPIC, new_name) is not None
        if topic is None or is_taken or self.leads(new_name):
            return
        home = int(topic.topic_id[:4], 16)
        there = slot_of(new_name.partition("://")[2])
        if has_slot(self.frozen, home) or has_slot(self.frozen, there):
            return
        pointed = TopicNamePointed(new_name, topic.topic_id)
        self._owner(there).apply(pointed)
        self.whole.apply(pointed)
        events: list[Any] = []
        unit = self.whole.state_of(StateKind.ASSIGNMENT, f"{topic.topic_id}/")
        if unit is not None and unit.is_assigned:
            events.append(TopicUnassigned(topic.topic_id, "", name, unit.epoch, "renamed"))
        if self.whole.state_of(StateKind.TOPIC_NAME, name) is None:
            events.append(TopicNamePointed(name, topic.topic_id))
        former = [each for each in topic.former_names if each.until_ms > self.now_ms]
        dropped = {each.name for each in topic.former_names} - {each.name for each in former}
        former.append(OldName(name, self.now_ms + grace_ms))
        events.append(
            TopicRenamed(
                name, topic.topic_id, new_name, "ns-id", tuple(former), tuple(sorted(dropped))
            )
        )
        self._owner(home).apply(*events)
        self.whole.apply(*events)

    def change(self, kind: StateKind, key: str, variant: int) -> None:
        """Create the object, or else change or delete it, or assign its unit or take it back."""
        self.generation += 1
        present: Any = read_states(self.whole.query, kind, (key,))[key]
        match kind, present:
            case StateKind.TENANT, None:
                self.decide(kind, key, TenantCreated(id_of(key, self.generation), key))
            case StateKind.TENANT, _:
                changed = TenantPropertiesSet(key, (("n", str(self.generation)),))
                self.decide(
                    kind,
                    key,
                    TenantDeleted(key, present.tenant_id) if variant % 3 == 0 else changed,
                )
            case StateKind.NAMESPACE, None:
                created = NamespaceCreated(id_of(key, self.generation), key, "tenant-id")
                self.decide(kind, key, created)
            case StateKind.NAMESPACE, _:
                changed = NamespacePropertiesSet(key, (("n", str(self.generation)),))
                self.decide(
                    kind,
                    key,
                    NamespaceDeleted(key, present.namespace_id) if variant % 3 == 0 else changed,
                )
            case StateKind.TOPIC, None:
                self.create_topic(key)
            case StateKind.TOPIC, topic:
                self._change_topic(topic, variant)
            case StateKind.BROKER_SESSION, _:
                self._change_session(key, present, variant)

    def _change_topic(self, topic: Any, variant: int) -> None:
        key = f"{topic.topic_id}/"
        unit = read_states(self.whole.query, StateKind.ASSIGNMENT, (key,))[key]
        is_assigned = unit is not None and unit.is_assigned  # type: ignore[union-attr]
        epoch = 0 if unit is None else unit.epoch  # type: ignore[union-attr]
        left = TopicUnassigned(topic.topic_id, "", topic.name, epoch, "idle")
        if variant % 4 == 0:
            former = tuple(each.name for each in topic.former_names)
            gone = TopicDeleted(topic.name, topic.topic_id, former_names=former)
            self.decide(StateKind.TOPIC, topic.name, *([left] if is_assigned else []), gone)
        elif variant % 4 == 1:
            changed = TopicPropertiesSet(topic.name, (("owner", "ops"),), topic.topic_id)
            self.decide(StateKind.TOPIC, topic.name, changed)
        elif is_assigned and variant % 4 == 2:
            self.decide(StateKind.ASSIGNMENT, key, left)
        else:
            epoch = unit.epoch + 1 if unit is not None else 1  # type: ignore[union-attr]
            session = SESSIONS[variant % len(SESSIONS)]
            assigned = TopicAssigned(
                topic.topic_id, "", topic.name, epoch, "broker-1", session, "first_lookup"
            )
            self.decide(StateKind.ASSIGNMENT, key, assigned)

    def _change_session(self, broker_id: str, present: Any, variant: int) -> None:
        if present is not None and present.is_live and variant % 2:
            ended = BrokerSessionEnded(broker_id, present.session_id, present.epoch, "closed")
            self.decide(StateKind.BROKER_SESSION, broker_id, ended)
            return
        self.epochs[broker_id] += 1
        established = BrokerSessionEstablished(
            broker_id,
            f"session-{self.generation}",
            self.epochs[broker_id],
            Endpoints("pulsar://b:1", "b:2", "b:3"),
            100,
            "zone-a",
        )
        self.decide(StateKind.BROKER_SESSION, broker_id, established)

    # A move -----------------------------------------------------------------------------------

    def step(self, source: int, eighths: tuple[int, int], ending: str) -> None:
        """Go a step on with the move that is under way, or begin one."""
        if self.move is None:
            to = 3 - source
            wanted = EIGHTHS[min(eighths)][0], EIGHTHS[max(eighths)][1]
            others = without(ALL, (wanted,))
            ranges = without(self.sites[source].own.ranges, others)
            if not ranges:
                return
            self.move_id += 1
            self.move = self._move(self.sites[source], self.sites[to], ranges, ending)
        if next(self.move, "over") == "over":
            self.move = None

    def _move(self, a: Site, b: Site, ranges: SlotRanges, ending: str) -> Iterator[None]:
        move_id, tail = self.move_id, len(a.touched)
        b.apply(SlotsIncoming(move_id, ranges, 1, tail))
        yield
        for kind in MOVING_KINDS:
            for row in a.rows_of(kind, ranges) or ():
                again = _moving(a.touched[tail:], ranges)
                tail = len(a.touched)
                scanned = a.states_of([(kind, row.key)], ranges)
                rows = (*scanned, *a.states_of(again, ranges))
                yield  # Under way.
                b.apply(SlotRowsCopied(move_id, rows, kind.value, row.key, tail))
                yield
        if ending == "refused early":
            yield from self._refuse(b, ranges)
            return
        units = _units(a, ranges)
        a.apply(SlotsReleased(move_id, ranges, 2, *units, 7))
        self.frozen = ranges
        yield
        if ending == "taken back":
            yield from self._refuse(b, ranges)
            a.apply(SlotsReclaimed(move_id))
            self.frozen = ()
            return
        last = a.states_of(_moving(a.touched[tail:], ranges), ranges)
        owned = united(b.own.ranges, ranges)
        b.apply(
            SlotRowsCopied(move_id, last, SCAN_DONE, "", len(a.touched)),
            SlotsAdopted(owned, move_id + 1, move_id, ranges, 1, a.position, *units, 7),
        )
        self.frozen = ()
        yield
        yield from self._remove(a, ranges)

    def _refuse(self, b: Site, ranges: SlotRanges) -> Iterator[None]:
        b.apply(SlotsRefused(self.move_id, "stopped"))
        yield
        yield from self._remove(b, ranges)

    def _remove(self, site: Site, ranges: SlotRanges) -> Iterator[None]:
        for kind in MOVING_KINDS:
            for row in site.rows_of(kind, ranges):
                site.apply(SlotRowsRemoved(self.move_id, (SlotKey(kind, row.key),), False))
                yield
        site.apply(SlotRowsRemoved(self.move_id, (), True))

    def _names(self, site: Site) -> dict[str, State]:
        """Return what leads to topics: pointers, and the names that requests may use."""
        owned = site.own.ranges
        rows = [*site.rows_of(StateKind.TOPIC_NAME, owned)]
        rows += [
            row
            for row in site.rows_of(StateKind.FORMER_NAME, owned)
            if isinstance(row.state, FormerName) and row.state.until_ms > self.now_ms
        ]
        return {f"{row.kind} {row.key}": row.state for row in rows}  # type: ignore[misc]

    # What must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        first, second = self.sites.values()
        seen, other = visible(first), visible(second)
        children = {name for name in {**seen, **other} if name.startswith("children")}
        assert not seen.keys() & other.keys() - children, "no row is seen at two shards"
        if self.frozen:
            return
        assert {**seen, **other} == visible(self.whole)
        assert self._names(first) | self._names(second) == self._names(self.whole)
        for kind in (StateKind.USAGE, StateKind.TENANT_USAGE):
            assert first.sums(kind) + second.sums(kind) == self.whole.sums(kind)
        for site in (first, second):
            totals = site.sums(StateKind.TOTAL)
            for kind in COUNTED:
                assert totals[kind.value] == len(site.rows_of(kind, ALL)), "stored rows count"


COUNTED = (
    StateKind.TENANT,
    StateKind.NAMESPACE,
    StateKind.TOPIC,
    StateKind.TOPIC_NAME,
    StateKind.FORMER_NAME,
)


def _moving(touched: Sequence[Change], ranges: SlotRanges) -> list[tuple[StateKind, str]]:
    return [
        (kind, key)
        for kind, key, slot in touched
        if kind in MOVING_KINDS and slot is not None and has_slot(ranges, slot)
    ]


def _units(
    site: Site, ranges: SlotRanges
) -> tuple[tuple[CountedUnits, ...], tuple[CountedUnits, ...]]:
    assigned: list[Any] = [
        row.state
        for row in site.rows_of(StateKind.ASSIGNMENT, ranges)
        if row.state.is_assigned  # type: ignore[union-attr]
    ]
    sessions = Counter(unit.session_id for unit in assigned)
    tenants = Counter(unit.tenant for unit in assigned)
    return (
        tuple(CountedUnits(of, units) for of, units in sorted(sessions.items())),
        tuple(CountedUnits(of, units) for of, units in sorted(tenants.items())),
    )


OBJECTS = st.sampled_from(
    [
        *((StateKind.TENANT, name) for name in TENANTS),
        *((StateKind.NAMESPACE, name) for name in NAMESPACES),
        *((StateKind.TOPIC, name) for name in TOPICS),
        *((StateKind.BROKER_SESSION, name) for name in BROKERS),
    ]
)
RENAMES = st.tuples(
    st.just("rename"),
    st.sampled_from(TOPICS),
    st.sampled_from(TOPICS),
    st.sampled_from([0, 3, 1_000]),
)
CHANGES = st.tuples(st.just("change"), OBJECTS, st.integers(0, 11))
STEPS = st.tuples(
    st.just("step"),
    st.integers(1, 2),
    st.tuples(st.integers(0, 7), st.integers(0, 7)),
    st.sampled_from(["adopted", "adopted", "adopted", "refused early", "taken back"]),
)


@given(st.lists(st.one_of(CHANGES, CHANGES, RENAMES, RENAMES, STEPS, STEPS), max_size=40))
@settings(max_examples=20, deadline=None)
def test_two_views_between_which_slots_move_are_one_view(history: list[tuple[Any, ...]]) -> None:
    cluster = Cluster()
    try:
        for name in TOPICS:
            cluster.change(StateKind.TOPIC, name, 1)
        for name in TOPICS[::2]:
            cluster.change(StateKind.TOPIC, name, 3)
        for what, *rest in history:
            if what == "change":
                (kind, key), variant = rest
                cluster.change(kind, key, variant)
            elif what == "rename":
                cluster.rename(*rest)
            else:
                cluster.step(*rest)
            cluster.check()
        while cluster.move is not None:
            cluster.step(1, (0, 0), "")
            cluster.check()
        for site in cluster.sites.values():
            _check_batches(site)
    finally:
        cluster.close()


def _check_batches(site: Site) -> None:
    """However the records are cut into batches, the tables are the same."""
    again = MemoryView()
    again.apply(entries_of([site.records]))
    assert again.dump() == site.view.dump()
    again.close()
