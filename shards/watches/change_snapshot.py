"""The snapshot of a watch: the items of the view as of one position.

One read transaction covers a whole snapshot, so all of its pages are as of one position. Pages are
read on a worker thread, each after the one before was sent: memory is bounded by a page, whatever
is watched.

Assignments are found through the topics they belong to, as the view keeps them by topic id. A watch
of topics by name is also told of names that are no topic's here and lead to one: see ``Item``.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Generic, TypeGuard, TypeVar

from sqlalchemy.exc import TimeoutError as PoolTimeout

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.stream import WATCH_SNAPSHOT_ITEMS_PER_PAGE
from nextgen.kernel.routing.names import (
    PARTITION_SUFFIX,
    Domain,
    InvalidName,
    TopicName,
    assignment_key,
    parse_topic,
)
from nextgen.replication.view.database import driver_of, read_applied, sqlite_errors
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_TOPIC,
    Item,
    Kind,
    UnitAssignment,
)
from shards.domain.assignment import Assignment
from shards.domain.namespace import Namespace
from shards.domain.renames.names import FormerName, TopicPointer
from shards.domain.scalable.state import ScalableTopic
from shards.domain.states import State, StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.projections.foreign import read_foreign
from shards.projections.reading import end_of_prefix, prefix_range, read_range
from shards.projections.rows import MAPPINGS, Query, ReadTransaction, Row, read_states
from shards.projections.tables import ASSIGNMENTS, FORMER_NAMES, TOPIC_NAMES, TOPICS
from shards.watches.change_watch import Selection
from shards.wire.inventory import KINDS, item_message

_TOPIC_ID = (
    f"iif(typeof({TOPICS.name}.topic_id) = 'blob', "
    f"lower(hex({TOPICS.name}.topic_id)), {TOPICS.name}.topic_id)"
)
"""A topic's id as it stands in the keys of its units; see ``rows.pack_id``."""

_UNIT_COLUMNS = ", ".join(f"{ASSIGNMENTS.name}.{column.name}" for column in ASSIGNMENTS.columns)
_SELECT_UNITS = (
    f"SELECT {TOPICS.name}.name, {_UNIT_COLUMNS} FROM {TOPICS.name} JOIN {ASSIGNMENTS.name} "
    # A unit's key is its topic's id, a slash and the unit; '0' is the character behind the slash.
    f"ON {ASSIGNMENTS.name}.key >= {_TOPIC_ID} || '/' "
    f"AND {ASSIGNMENTS.name}.key < {_TOPIC_ID} || '0' "
    f"WHERE {TOPICS.name}.name >= ? AND {TOPICS.name}.name < ? "
    f"AND ({TOPICS.name}.name, {ASSIGNMENTS.name}.key) > (?, ?) "
    f"ORDER BY {TOPICS.name}.name, {ASSIGNMENTS.name}.key LIMIT {WATCH_SNAPSHOT_ITEMS_PER_PAGE}"
)

_SCALABLE = f"{Domain.TOPIC}://"
_SEGMENTS = f"{Domain.SEGMENT}://"

_PARTITION = re.compile(re.escape(PARTITION_SUFFIX) + r"\d*")


class ViewLook:
    """One read transaction on the view. Used by one thread at a time; ``close`` it."""

    def __init__(self, read_transaction: ReadTransaction) -> None:
        with ExitStack() as opening:
            connection = opening.enter_context(read_transaction())
            self._driver = driver_of(connection)
            self.position = read_applied(self._driver).position
            self._foreign = read_foreign(self._query)
            self._open = opening.pop_all()

    def items(self, selection: Selection) -> Iterator[Sequence[Item]]:
        """Yield the selected items in pages, none of them empty: kind by kind, by name.

        Units of partitioned topics come topic by topic.
        """
        for kind in selection.kinds:
            for states in self._states(kind, selection):
                if states:
                    yield [_item(kind, state) for state in states]
            if kind == KIND_TOPIC and selection.names and self._has_names():
                yield from self._leading_names(selection.names)

    def close(self) -> None:
        """End the transaction. Closing again does nothing."""
        self._open.close()

    def _query(self, statement: str, parameters: tuple[object, ...] = ()) -> Sequence[Row]:
        return self._driver.execute(statement, parameters).fetchall()

    def _states(self, kind: Kind, selection: Selection) -> Iterator[Sequence[State]]:
        if kind == KIND_ASSIGNMENT:
            if selection.names:
                return self._own_units(_named_assignments(self._query, selection.names))
            return self._own_units(_assignments_with_prefix(self._query, selection.prefix))
        of_kind = KINDS[kind]
        if selection.names:
            return self._own(_named(self._query, of_kind, selection.names), of_kind)
        return self._own(_with_prefix(self._query, of_kind, selection.prefix), of_kind)

    def _has_names(self) -> bool:
        """Return whether the shard has any name that leads to a topic."""
        return any(
            self._query(f"SELECT 1 FROM {table.name} LIMIT 1")
            for table in (TOPIC_NAMES, FORMER_NAMES)
        )

    def _leading_names(self, names: Sequence[str]) -> Iterator[Sequence[Item]]:
        """Yield what those names lead to that are no topic's here."""
        for page in _pages(names):
            topics = read_states(self._query, StateKind.TOPIC, page)
            others = [name for name in page if not self._is_own(StateKind.TOPIC, topics[name])]
            pointers = read_states(self._query, StateKind.TOPIC_NAME, others)
            items = [
                self._former_item(former) or self._pointer_item(pointers[name])
                for name, former in read_states(self._query, StateKind.FORMER_NAME, others).items()
            ]
            found = [item for item in items if item is not None]
            if found:
                yield found

    def _former_item(self, former: State | None) -> Item | None:
        """Return the topic that a former name leads to, under that name."""
        if not isinstance(former, FormerName) or not self._is_own(StateKind.FORMER_NAME, former):
            return None
        topic = read_states(self._query, StateKind.TOPIC, (former.current,))[former.current]
        is_its_topic = isinstance(topic, Topic) and topic.topic_id == former.topic_id
        return item_message(KIND_TOPIC, former.name, topic) if is_its_topic else None

    def _pointer_item(self, pointer: State | None) -> Item | None:
        if not isinstance(pointer, TopicPointer) or not self._is_own(StateKind.TOPIC_NAME, pointer):
            return None
        item = Item(kind=KIND_TOPIC, name=pointer.name)
        item.pointer.topic_id = pointer.topic_id
        return item

    def _is_own(self, kind: StateKind, state: State | None) -> bool:
        """Return whether there is a state, and it is of a slot that the shard has."""
        key = getattr(state, "name", "")
        return state is not None and not self._foreign.has_state(kind, key, state)

    # Foreign rows are left out behind the reads: a page may be short, and the next one follows.

    def _own_units(self, pages: Iterator[Sequence[State]]) -> Iterator[Sequence[State]]:
        if not self._foreign:
            return pages
        return (
            [
                unit
                for unit in page
                if isinstance(unit, Assignment)
                and not self._foreign.has(StateKind.ASSIGNMENT, unit.key)
            ]
            for page in pages
        )

    def _own(self, pages: Iterator[Sequence[State]], kind: StateKind) -> Iterator[Sequence[State]]:
        if not self._foreign:
            return pages
        return (
            [
                state
                for state in page
                if isinstance(state, Tenant | Namespace | Topic | ScalableTopic)
                and not self._foreign.has_state(kind, state.name, state)
            ]
            for page in pages
        )


Owner = TypeVar("Owner")
T = TypeVar("T")


class SnapshotRun(Generic[Owner]):
    """Reads the snapshots of several watches in one transaction, one after the other. ``close``
    it."""

    def __init__(
        self, read_transaction: ReadTransaction, selected: Sequence[tuple[Owner, Selection]]
    ) -> None:
        self.position = 0
        """What is read is as of this position. Set by ``open``."""
        self.current: Owner | None = None
        """Whose items were given last, while more of them may come."""
        self._read_transaction = read_transaction
        self._left = deque(selected)
        self._look: ViewLook | None = None
        self._pages: Iterator[Sequence[Item]] = iter(())
        self._working: asyncio.Future[Any] | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Begin the transaction.

        Raises:
            Unavailable: The view cannot be read at the moment.
        """
        self._look = await self._on_thread(lambda: ViewLook(self._read_transaction))
        self.position = self._look.position

    async def read(self) -> list[tuple[Owner, Sequence[Item], bool]]:
        """Return about a page of items: parts, each with its watch and whether it is the watch's
        last.

        Raises:
            Unavailable: The view cannot be read at the moment.
        """
        return await self._on_thread(self._read)

    @property
    def is_done(self) -> bool:
        """Whether everything was given."""
        return self.current is None and not self._left

    def give_back(self) -> list[Owner]:
        """Return the watches whose items were not begun yet, and leave them out of this run."""
        left = [owner for owner, _ in self._left]
        self._left.clear()
        return left

    def close(self) -> None:
        """End the transaction, once the thread no longer uses it."""
        self._is_closed = True
        if self._working is None:
            self._close_look()

    def _close_look(self) -> None:
        look, self._look = self._look, None
        if look is not None:
            look.close()

    async def _on_thread(self, work: Callable[[], T]) -> T:
        # Shielded: a running thread cannot be cancelled, and its transaction must stay open.
        working = asyncio.get_running_loop().run_in_executor(None, work)
        self._working = working
        working.add_done_callback(self._worked)
        try:
            with sqlite_errors():
                return await asyncio.shield(working)
        except (OSError, PoolTimeout) as error:
            raise Unavailable(f"the view cannot be read at the moment: {error}") from error

    def _worked(self, working: asyncio.Future[Any]) -> None:
        self._working = None
        if not self._is_closed or working.cancelled() or working.exception() is not None:
            return
        opened = working.result()
        if isinstance(opened, ViewLook):
            opened.close()
        self._close_look()

    def _read(self) -> list[tuple[Owner, Sequence[Item], bool]]:
        assert self._look is not None, "the look was opened"
        parts: list[tuple[Owner, Sequence[Item], bool]] = []
        count = 0
        while count < WATCH_SNAPSHOT_ITEMS_PER_PAGE:
            if self.current is None:
                if not self._left:
                    break
                self.current, selection = self._left.popleft()
                self._pages = self._look.items(selection)
            items = next(self._pages, None)
            if items is None and parts and parts[-1][0] is self.current:
                # Its last items were read just now: they and the end go in one message.
                parts[-1] = (self.current, parts[-1][1], True)
            else:
                parts.append((self.current, items or (), items is None))
            count += len(items or ()) + 1
            if items is None:
                self.current = None
        return parts


def _item(kind: Kind, state: State) -> Item:
    if isinstance(state, Assignment):
        unit = UnitAssignment(
            topic_id=state.topic_id,
            unit=state.unit,
            name=state.name,
            epoch=state.epoch,
            broker_id=state.broker_id,
            session_id=state.session_id,
        )
        return Item(kind=kind, name=state.name, assignment=unit)
    assert isinstance(state, Tenant | Namespace | Topic | ScalableTopic), (
        f"{state!r} is not watched"
    )
    return item_message(kind, state.name, state)


def _pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), WATCH_SNAPSHOT_ITEMS_PER_PAGE):
        yield names[start : start + WATCH_SNAPSHOT_ITEMS_PER_PAGE]


def _named(query: Query, kind: StateKind, names: Sequence[str]) -> Iterator[Sequence[State]]:
    for page in _pages(names):
        found = read_states(query, kind, page)
        yield [state for state in found.values() if state is not None]


def _with_prefix(query: Query, kind: StateKind, prefix: str) -> Iterator[Sequence[State]]:
    limit = WATCH_SNAPSHOT_ITEMS_PER_PAGE
    after = ""
    while True:
        states = read_range(query, kind, prefix_range(prefix), after=after, limit=limit)
        yield states
        if len(states) < limit:
            return
        last = states[-1]
        assert isinstance(last, Tenant | Namespace | Topic | ScalableTopic), (
            f"{last!r} is not watched"
        )
        after = last.name


def _named_assignments(query: Query, names: Sequence[str]) -> Iterator[Sequence[State]]:
    for page in _pages(names):
        parsed = [topic for name in page if (topic := _topic_of(name)) is not None]
        topics = read_states(query, StateKind.TOPIC, {topic.base_text for topic in parsed})
        keys: list[str] = []
        for topic in parsed:
            state = topics[topic.base_text]
            if isinstance(state, Topic):
                keys.append(assignment_key(state.topic_id, topic.unit))
        found = read_states(query, StateKind.ASSIGNMENT, keys)
        yield [state for state in found.values() if _is_assigned(state, "")]


def _assignments_with_prefix(query: Query, prefix: str) -> Iterator[Sequence[State]]:
    for base in _bases_of_partitions(prefix):
        yield from _units(query, prefix, base, f"{base}\0")
    for base in _bases_of_segments(prefix):
        yield from _units(query, prefix, base, f"{base}\0")
    yield from _units(query, prefix, prefix, end_of_prefix(prefix))
    scalable = _scalable_prefix(prefix)
    if scalable and not scalable.startswith(prefix):
        yield from _units(query, prefix, scalable, end_of_prefix(scalable))


def _units(query: Query, prefix: str, start: str, end: str) -> Iterator[Sequence[State]]:
    """Yield the assigned units whose names begin with ``prefix``, of the topics from ``start`` to
    ``end``."""
    from_row = MAPPINGS[StateKind.ASSIGNMENT].from_row
    topic, key = start, ""
    while True:
        rows = query(_SELECT_UNITS, (topic, end, topic, key))
        states = [from_row(row[1:]) for row in rows]
        yield [state for state in states if _is_assigned(state, prefix)]
        if len(rows) < WATCH_SNAPSHOT_ITEMS_PER_PAGE:
            return
        topic, key = rows[-1][0], rows[-1][1]


def _is_assigned(state: State | None, prefix: str) -> TypeGuard[Assignment]:
    return isinstance(state, Assignment) and bool(state.broker_id) and state.name.startswith(prefix)


def _topic_of(name: str) -> TopicName | None:
    try:
        return parse_topic(name)
    except InvalidName:
        return None


def _bases_of_partitions(prefix: str) -> Iterator[str]:
    """Yield the topics, shorter than ``prefix``, whose partitions may begin with it."""
    for place, character in enumerate(prefix):
        if character == PARTITION_SUFFIX[0]:
            tail = prefix[place:]
            if PARTITION_SUFFIX.startswith(tail) or _PARTITION.fullmatch(tail):
                yield prefix[:place]


def _scalable_prefix(prefix: str) -> str:
    """Return the prefix of the scalable topics whose segments may begin with ``prefix``, besides
    those that are shorter; "" if there are none."""
    if _SEGMENTS.startswith(prefix):
        return _SCALABLE
    return _SCALABLE + prefix[len(_SEGMENTS) :] if prefix.startswith(_SEGMENTS) else ""


def _bases_of_segments(prefix: str) -> Iterator[str]:
    """Yield the scalable topics, shorter than ``prefix``, whose segments may begin with it."""
    if not prefix.startswith(_SEGMENTS):
        return
    rest = prefix[len(_SEGMENTS) :]
    for place, character in enumerate(rest):
        if character == "/":
            yield _SCALABLE + rest[:place]
