"""Histories of a system that is right by construction: what the checks must find green.

A world is one machine that carries operations out one after the other, at a random moment between
their invocation and their return. Answers are lost, clients give up, effects come late or never,
leaders change, brokers die; nothing of it breaks a promise. It shares no code with the checks.

A topic that is renamed is called ``NAME``, ``NAME-as-1``, ... in any order, and used by any of
these names, also by those that it does not have yet.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from nextgen.harness.history.model import (
    UNKNOWN,
    Drained,
    Fault,
    FinalItem,
    FinalListing,
    History,
    LogEvent,
    Observation,
    Operation,
    OperationKind,
    Publish,
    Received,
    Run,
    SnapshotItem,
    ViewHash,
    WatchOpened,
    WatchProgress,
    WatchRecord,
    WatchReset,
    WatchSnapshot,
    failed,
    refused,
)
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import mint_id

NAMESPACE = "acme/orders"
SCOPES = ("acme", "persistent://acme/")
MS = 1_000_000
Happening = tuple[int, int, Callable[[], None]]
"""When, a number that settles ties, what."""
Items = dict[tuple[str, str], dict[str, object]]
"""What there is, by kind and name."""

NAMES_EACH = 4
"""Names that a topic may have, the first one included."""

RENAMED_SHARE = 0.2
"""Of operations: those of topics that are renamed."""

_LATER = "-as-"
_KINDS = (
    *(OperationKind.CREATE, OperationKind.CREATE, OperationKind.DELETE),
    *(OperationKind.SET_PROPERTIES, OperationKind.SET_PROPERTIES),
    *(OperationKind.GET, OperationKind.GET, OperationKind.GET),
    *(OperationKind.LOOKUP, OperationKind.MOVE),
    *(OperationKind.SET_POLICIES, OperationKind.SET_POLICIES),
    OperationKind.GET_POLICIES,
)
_KINDS_OF_RENAMED = (
    *(OperationKind.RENAME, OperationKind.RENAME, OperationKind.SET_PROPERTIES),
    *(OperationKind.GET, OperationKind.GET, OperationKind.LOOKUP, OperationKind.MOVE),
    *(OperationKind.SET_POLICIES, OperationKind.GET_POLICIES, OperationKind.DELETE),
)

BROKERS = ("broker-1", "broker-2", "broker-3")


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a history. ``keys`` are topics; ``streams`` carry messages."""

    operations: int = 300
    keys: int = 12
    clients: int = 6
    streams: int = 2
    messages: int = 80
    watchers: int = 4
    trouble: float = 0.1
    """Share of operations that get no answer, or a failure."""
    gap_ms: float = 1.0
    """Between two invocations, on the average."""
    with_command_ids: bool = True
    moves: int = 3
    """How often a slot goes from one shard to the other."""
    renamed: int = 4
    """Further topics, which are renamed."""


@dataclass(slots=True)
class _Topic:
    name: str
    id: str
    version: int
    properties: Mapping[str, str]
    epoch: int = 0
    broker_id: str = ""
    session_id: str = ""
    policies: str = ""
    policies_version: int = 0
    names: set[str] = field(default_factory=set)
    """All that it ever had."""


@dataclass(slots=True)
class _Shard:
    term: int = 1
    log: list[LogEvent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Wish:
    """An operation with the moment at which it is to happen, None for never."""

    operation: Operation
    happens_ns: int | None
    answered_ns: int | None
    outcome: str
    """"" for whatever the system says."""


class World:
    """Makes one history from one seed."""

    def __init__(self, seed: int, size: Size | None = None) -> None:
        self.size = size or Size()
        self._chance = random.Random(seed)
        self._seed = seed
        self._shards = {1: _Shard(), 2: _Shard()}
        self._homes: dict[int, int] = {}
        """The shard of each slot that ever moved."""
        self._move_ids = 0
        self._came: dict[tuple[int, int], Items] = {}
        """What a shard got by its event at a position."""
        self._topics: dict[str, _Topic] = {}
        self._parents: dict[str, str] = {}
        self._sessions = dict.fromkeys(BROKERS, "")
        self._session_epochs = dict.fromkeys(BROKERS, 0)
        self._ids = 0
        self._operations: list[Operation] = []
        self._publishes: list[Publish] = []
        self._stored: dict[str, list[Publish]] = {}
        self._faults: list[Fault] = []
        self._now_ns = 1_000 * MS
        self.keys = [f"persistent://{NAMESPACE}/t-{i}" for i in range(self.size.keys)]
        self.renamed = [f"persistent://{NAMESPACE}/r-{i}" for i in range(self.size.renamed)]
        self.streams = [f"persistent://{NAMESPACE}/stream-{i}" for i in range(self.size.streams)]

    def history(self) -> History:
        """Return the history. Call it once."""
        began_ns = self._now_ns
        self._begin()
        happenings = [*self._wishes(), *self._sends(), *self._breaks(), *self._slot_moves()]
        for _, _, happen in sorted(happenings, key=lambda each: each[:2]):
            happen()
        ended_ns = max(at_ns for at_ns, _, _ in happenings) + 60_000 * MS
        log = [event for shard in self._shards.values() for event in shard.log]
        return History(
            run=Run("world", began_ns, ended_ns, self._seed, SCOPES, f"world --seed {self._seed}"),
            operations=tuple(self._operations),
            publishes=tuple(self._publishes),
            received=tuple(self._received()),
            drained=tuple(Drained("reader", topic) for topic in self.streams),
            watch_records=tuple(self._watches()),
            log=tuple(log),
            final_items=tuple(
                FinalItem(topic.name, topic.id, topic.version, topic.properties)
                for topic in self._topics.values()
            ),
            final_listings=(FinalListing(f"persistent://{NAMESPACE}/"),),
            view_hashes=tuple(
                ViewHash(shard, node, len(each.log), f"digest-{shard}")
                for shard, each in self._shards.items()
                for node in ("node-1", "node-2", "node-3")
            ),
            faults=tuple(self._faults),
        )

    # Before the load --------------------------------------------------------------------------

    def _begin(self) -> None:
        self._append(1, "slots_adopted")
        self._append(2, "slots_adopted")
        for broker in BROKERS:
            self._establish(broker)
        for key in ("acme", NAMESPACE, *self.streams, *self.renamed):
            asked = self._asked("setup", OperationKind.CREATE, key, {"properties": {}})
            self._carry_out(_Wish(asked, self._now_ns, self._now_ns + MS, ""))
            self._now_ns += 2 * MS

    # What is going to happen ------------------------------------------------------------------

    def _wishes(self) -> Iterator[Happening]:
        at_ns = self._now_ns
        for number in range(self.size.operations):
            at_ns += int(self._chance.expovariate(1 / self.size.gap_ms) * MS) + 1
            wish = self._wish(number, at_ns)
            happens_ns = wish.happens_ns
            if happens_ns is None:
                happens_ns = wish.operation.invoked_ns
            yield happens_ns, number, partial(self._carry_out, wish)
        self._load_ends_ns = at_ns

    def _wish(self, number: int, at_ns: int) -> _Wish:
        chance = self._chance
        is_renamed = bool(self.renamed) and chance.random() < RENAMED_SHARE
        kind = chance.choice(_KINDS_OF_RENAMED if is_renamed else _KINDS)
        key = self._key_for(kind, is_renamed=is_renamed)
        client = f"client-{chance.randrange(self.size.clients)}"
        asked = self._asked(client, kind, key, self._argument(number, kind, key), at_ns)
        took_ns = int(chance.expovariate(1 / 4) * MS) + 2
        happens_ns = at_ns + chance.randrange(1, took_ns)
        returned_ns = at_ns + took_ns
        if chance.random() >= self.size.trouble:
            return _Wish(asked, happens_ns, returned_ns, "")
        gave_up_ns = chance.choice((None, returned_ns))
        match chance.randrange(4):
            case 0:
                return _Wish(asked, None, returned_ns, failed("UNAVAILABLE"))
            case 1:
                return _Wish(asked, None, gave_up_ns, UNKNOWN)
            case 2:
                return _Wish(asked, happens_ns, gave_up_ns, UNKNOWN)
            case _:
                late_ns = happens_ns + chance.randrange(300 * MS)
                return _Wish(asked, late_ns, gave_up_ns, UNKNOWN)

    def _key_for(self, kind: OperationKind, *, is_renamed: bool) -> str:
        if is_renamed:
            first = self._chance.choice(self.renamed)
            if kind is OperationKind.RENAME:
                first = self._chance.choice([first, *self.streams])
            return _later(first, self._chance.randrange(NAMES_EACH))
        if kind in (OperationKind.LOOKUP, OperationKind.MOVE):
            return self._chance.choice([*self.keys, *self.streams])
        return self._chance.choice(self.keys)

    def _argument(self, number: int, kind: OperationKind, key: str) -> dict[str, object]:
        chance = self._chance
        argument: dict[str, object] = {}
        if kind in (OperationKind.CREATE, OperationKind.SET_PROPERTIES):
            argument["properties"] = {"by": f"{number % 40}"}
        if kind is OperationKind.SET_PROPERTIES and chance.random() < 0.3:
            argument["expected_version"] = chance.randint(1, 3)
        if kind is OperationKind.RENAME:
            argument["new_name"] = _later(_first(key), chance.randrange(1, NAMES_EACH))
        if kind is OperationKind.SET_POLICIES:
            expected = chance.choice((None, None, 0, 1, 2))
            argument = {
                "policies": chance.choice((f"ttl {number % 40}", "")),
                "expected_version": expected or 0,
                "expects_none": expected == 0,
            }
        return argument

    def _asked(
        self,
        client: str,
        kind: OperationKind,
        key: str,
        argument: Mapping[str, object],
        at_ns: int | None = None,
    ) -> Operation:
        self._ids += 1
        command_id = f"{self._ids:032x}" if self.size.with_command_ids else ""
        invoked_ns = self._now_ns if at_ns is None else at_ns
        return Operation(
            client, self._ids, kind, key, invoked_ns, argument=argument, command_id=command_id
        )

    def _sends(self) -> Iterator[Happening]:
        for place, topic in enumerate(self.streams):
            at_ns = stored_ns = self._now_ns
            for sequence in range(self.size.messages):
                at_ns += self._chance.randrange(4 * MS) + 1
                # A producer's messages are stored in the order in which it sends them.
                stored_ns = max(stored_ns, at_ns) + self._chance.randrange(MS) + 1
                acked_ns: int | None = stored_ns + self._chance.randrange(3 * MS) + 1
                is_stored = True
                if self._chance.random() < self.size.trouble:
                    acked_ns, is_stored = None, self._chance.random() < 0.5
                sent = Publish(topic, f"producer-{place}", sequence, at_ns, acked_ns)
                number = 1_000_000 * (place + 1) + sequence
                yield stored_ns, number, partial(self._store, sent, is_stored)

    def _breaks(self) -> Iterator[Happening]:
        for number in range(6):
            at_ns = self._now_ns + self._chance.randrange(max(1, self._load_ends_ns - self._now_ns))
            yield at_ns, 9_000_000 + number, partial(self._break, at_ns)

    def _slot_moves(self) -> Iterator[Happening]:
        for number in range(self.size.moves):
            at_ns = self._now_ns + self._chance.randrange(max(1, self._load_ends_ns - self._now_ns))
            yield at_ns, 9_500_000 + number, self._move_slot

    def _move_slot(self) -> None:
        """Give the slot of a topic to the other shard."""
        slot = _slot(self._chance.choice([*self.keys, *self.renamed]))
        every = (*self.keys, *self.renamed, *self.streams)
        keys = [key for key in every if _slot(key) == slot]
        source = self.shard_of(keys[0])
        if any(self.shard_of(key) != source for key in keys):
            return  # By the rule of this world a slot may begin in both.
        target = 3 - source
        held = self._items(source, len(self._shards[source].log))
        came = {name: state for name, state in held.items() if _first(name[1]) in keys}
        left = self._append(source, "slots_released", facts={"slots": [slot]})
        self._move_ids += 1
        facts = {
            "move": self._move_ids,
            "came": [[slot, slot]],
            "from_shard": source,
            "from_position": left.position,
        }
        adopted = self._append(target, "slots_adopted", facts=facts)
        self._came[target, adopted.position] = came
        self._homes[slot] = target

    def _break(self, at_ns: int) -> None:
        ended_ns = at_ns + 5 * MS
        if self._chance.random() < 0.5:
            shard = self._chance.choice((1, 2))
            self._shards[shard].term += self._chance.randint(1, 2)
            self._faults.append(Fault("kill", "node-1", at_ns, ended_ns, shards=(shard,)))
            return
        broker = self._chance.choice(BROKERS)
        session, epoch = self._sessions[broker], self._session_epochs[broker]
        ended = {"broker_id": broker, "session_id": session, "epoch": epoch, "reason": "expired"}
        self._append(1, "broker_session_ended", key=broker, **ended)
        self._establish(broker)
        self._faults.append(Fault("kill", broker, at_ns, ended_ns))

    # What happens -----------------------------------------------------------------------------

    def _append(self, shard_id: int, kind: str, **fields: object) -> LogEvent:
        shard = self._shards[shard_id]
        event = LogEvent(shard_id, len(shard.log) + 1, shard.term, kind, **fields)  # type: ignore[arg-type]
        shard.log.append(event)
        return event

    def _establish(self, broker: str) -> None:
        self._session_epochs[broker] += 1
        self._ids += 1
        self._sessions[broker] = f"session-{self._ids}"
        self._append(
            1,
            "broker_session_established",
            key=broker,
            broker_id=broker,
            session_id=self._sessions[broker],
            epoch=self._session_epochs[broker],
        )

    def _carry_out(self, wish: _Wish) -> None:
        asked = wish.operation
        outcome, value, event = wish.outcome, dict[str, object](), None
        if wish.happens_ns is not None:
            told, value, event = self._execute(asked)
            outcome = outcome or told
        has_answer = outcome != UNKNOWN
        is_placed = has_answer and event is not None
        self._operations.append(
            replace(
                asked,
                returned_ns=wish.answered_ns,
                outcome=outcome,
                value=value if outcome == "ok" else {},
                shard=event.shard if is_placed and event is not None else 0,
                position=event.position if is_placed and event is not None else 0,
            )
        )

    def _execute(self, asked: Operation) -> tuple[str, dict[str, object], LogEvent | None]:
        if "://" not in asked.key:
            return self._create_parent(asked)
        topic = self._topics.get(_first(asked.key))
        if topic is not None and asked.key not in topic.names:
            topic = None
        if asked.kind is OperationKind.CREATE:
            return self._create(asked, topic)
        if asked.kind is OperationKind.GET:
            if topic is None:
                return "ok", {}, None
            read = {"id": topic.id, "version": topic.version, "properties": topic.properties}
            return "ok", read | _policies_of(topic), None
        if topic is None:
            return refused("NOT_FOUND"), {}, None
        if asked.kind is OperationKind.GET_POLICIES:
            return "ok", _policies_of(topic), None
        act = {
            OperationKind.DELETE: self._delete,
            OperationKind.SET_PROPERTIES: self._set,
            OperationKind.SET_POLICIES: self._set_policies,
            OperationKind.RENAME: self._rename,
        }.get(asked.kind, self._place)
        return act(asked, topic)

    def _create_parent(self, asked: Operation) -> tuple[str, dict[str, object], LogEvent]:
        kind = "namespace" if "/" in asked.key else "tenant"
        made = self._parents[asked.key] = self._mint(asked.key)
        event = self._append(
            1, f"{kind}_created", key=asked.key, id=made, causation_id=asked.command_id
        )
        return "ok", {"id": made, "version": 1}, event

    def _create(
        self, asked: Operation, topic: _Topic | None
    ) -> tuple[str, dict[str, object], LogEvent | None]:
        if topic is not None:
            return refused("ALREADY_EXISTS"), {}, None
        properties = dict(asked.argument["properties"])  # type: ignore[call-overload]
        made = _Topic(asked.key, self._mint(asked.key), 1, properties, names={asked.key})
        self._topics[asked.key] = made
        return "ok", {"id": made.id}, self._note(asked, made, "topic_created")

    def _delete(
        self, asked: Operation, topic: _Topic
    ) -> tuple[str, dict[str, object], LogEvent | None]:
        self._unassign(topic, "topic_deleted")
        del self._topics[_first(asked.key)]
        return "ok", {"id": topic.id}, self._note(asked, topic, "topic_deleted")

    def _unassign(self, topic: _Topic, reason: str) -> None:
        if topic.session_id:
            ended = {"id": topic.id, "epoch": topic.epoch, "reason": reason}
            self._append(self.shard_of(topic.name), "topic_unassigned", key=topic.name, **ended)
            topic.session_id = ""

    def _rename(
        self, asked: Operation, topic: _Topic
    ) -> tuple[str, dict[str, object], LogEvent | None]:
        new_name = str(asked.argument["new_name"])
        if new_name in topic.names:
            return refused("ALREADY_EXISTS"), {}, None
        self._unassign(topic, "renamed")
        topic.version += 1
        facts = {"new_name": new_name, "version": topic.version}
        said = _policies_of(topic) | {"properties": topic.properties}
        event = self._note(asked, topic, "topic_renamed", facts=facts, **said)
        topic.name = new_name
        topic.names.add(new_name)
        return "ok", {"id": topic.id, "version": topic.version}, event

    def _set(
        self, asked: Operation, topic: _Topic
    ) -> tuple[str, dict[str, object], LogEvent | None]:
        wanted = dict(asked.argument["properties"])  # type: ignore[call-overload]
        event = None
        if wanted != topic.properties:
            if asked.argument.get("expected_version", topic.version) != topic.version:
                return refused("VERSION_MISMATCH"), {}, None
            topic.properties, topic.version = wanted, topic.version + 1
            event = self._note(asked, topic, "topic_properties_set")
        return "ok", {"id": topic.id, "version": topic.version}, event

    def _set_policies(
        self, asked: Operation, topic: _Topic
    ) -> tuple[str, dict[str, object], LogEvent | None]:
        wanted, expected = str(asked.argument["policies"]), asked.argument["expected_version"]
        on_condition = bool(expected or asked.argument["expects_none"])
        if on_condition and expected != topic.policies_version:
            return refused("VERSION_MISMATCH"), {}, None
        event = None
        if on_condition or wanted != topic.policies:
            topic.policies, topic.version = wanted, topic.version + 1
            topic.policies_version += 1
            kind = "policy_set" if wanted else "policy_cleared"
            event = self._note(asked, topic, kind, **_policies_of(topic))
        return "ok", {"id": topic.id, "version": topic.version}, event

    def _place(
        self, asked: Operation, topic: _Topic
    ) -> tuple[str, dict[str, object], LogEvent | None]:
        is_lost = bool(topic.session_id) and topic.session_id not in self._sessions.values()
        event = None
        if not topic.session_id or is_lost or asked.kind is OperationKind.MOVE:
            reason = "moved" if topic.session_id else "first_lookup"
            reason = "broker_lost" if is_lost else reason
            others = [broker for broker in BROKERS if broker != topic.broker_id]
            topic.broker_id = self._chance.choice(others)
            topic.session_id = self._sessions[topic.broker_id]
            topic.epoch += 1
            event = self._append(
                self.shard_of(topic.name),
                "topic_assigned",
                key=topic.name,
                id=topic.id,
                epoch=topic.epoch,
                broker_id=topic.broker_id,
                session_id=topic.session_id,
                reason=reason,
            )
        answer: dict[str, object] = {
            "topic_id": topic.id,
            "epoch": topic.epoch,
            "broker_id": topic.broker_id,
            "session_id": topic.session_id,
        }
        return "ok", answer, event

    def _note(self, asked: Operation, topic: _Topic, kind: str, **fields: object) -> LogEvent:
        if "properties" in asked.argument:
            fields["properties"] = asked.argument["properties"]
        return self._append(
            self.shard_of(topic.name),
            kind,
            key=topic.name,
            id=topic.id,
            causation_id=asked.command_id,
            **fields,
        )

    def _store(self, sent: Publish, is_stored: bool) -> None:
        topic = self._topics[sent.topic]
        if is_stored and not topic.session_id:
            self._place(Operation("", 0, OperationKind.LOOKUP, sent.topic, 0), topic)
        if is_stored:
            stored = self._stored.setdefault(sent.topic, [])
            ledger = topic.epoch << 20
            entry = stored[-1].entry + 1 if stored and stored[-1].ledger == ledger else 0
            sent = replace(sent, ledger=ledger, entry=entry, epoch=topic.epoch)
            stored.append(sent)
        if sent.acked_ns is None:
            sent = replace(sent, ledger=-1, entry=-1, epoch=0)
        self._publishes.append(sent)

    def _mint(self, key: str) -> str:
        self._ids += 1
        return mint_id(_slot(key), self._ids.to_bytes(10, "big"))

    def shard_of(self, key: str) -> int:
        """Return the shard that has a topic at this moment."""
        return self._homes.get(_slot(key), 1 + sum(_first(key).encode()) % 2)

    # What is seen -----------------------------------------------------------------------------

    def _received(self) -> Iterator[Received]:
        for topic, stored in self._stored.items():
            for each in stored:
                yield Received(
                    "reader", topic, each.producer, each.sequence, each.ledger, each.entry
                )

    def _watches(self) -> Iterator[WatchRecord]:
        for number in range(self.size.watchers):
            for shard in self._shards:
                yield from self._watch(f"watcher-{number}", shard, number)

    def _watch(self, watcher: str, shard: int, number: int) -> Iterator[WatchRecord]:
        chance, log = self._chance, self._shards[shard].log
        every = [*self.keys, *(_later(each, 1) for each in self.renamed)]
        names = tuple(chance.sample(every, len(every) // 2)) if number % 2 else ()
        prefix = "" if names or number % 4 == 0 else f"persistent://{NAMESPACE}/"
        opened = WatchOpened(
            *(watcher, shard, 1, ("tenant", "namespace", "topic", "assignment"), prefix, names),
            from_position=chance.choice((0, chance.randint(1, len(log)))),
        )
        yield opened
        told_to = opened.from_position
        if not told_to:
            told_to = chance.randint(0, len(log))
            yield from self._snapshot(opened, told_to)
        while told_to < len(log):
            if chance.random() < 0.02:
                yield WatchReset(watcher, shard, 1)
                told_to = chance.randint(told_to, len(log))
                yield from self._snapshot(opened, told_to)
                continue
            told_to += 1
            event = log[told_to - 1]
            for kind, key in _shown(opened, event, is_log=number % 4 < 2):
                yield Observation(watcher, shard, 1, told_to, kind, key, event.epoch)
            if chance.random() < 0.05:
                yield WatchProgress(watcher, shard, 1, told_to)
        yield WatchProgress(watcher, shard, 1, told_to)

    def _snapshot(self, opened: WatchOpened, position: int) -> Iterator[WatchRecord]:
        for (kind, key), state in self._items(opened.shard, position).items():
            if _lets_through(opened, key):
                yield SnapshotItem(opened.watcher, opened.shard, opened.watch, kind, key, state)
        yield WatchSnapshot(opened.watcher, opened.shard, opened.watch, position)

    def _items(self, shard: int, position: int) -> Items:
        """Return what a shard has behind its event at ``position``."""
        items: Items = {}
        for event in self._shards[shard].log[:position]:
            if event.type == "slots_released":
                gone = event.facts["slots"]
                assert isinstance(gone, list)
                items = {name: it for name, it in items.items() if _slot(name[1]) not in gone}
            elif event.type == "slots_adopted":
                items |= self._came.get((shard, event.position), {})
            elif not event.type.startswith("broker_"):
                _fold(items, event)
        return items


def _first(key: str) -> str:
    """Return the name that a topic was created with."""
    return key.partition(_LATER)[0]


def _later(first: str, number: int) -> str:
    """Return one of the names that a topic may get, 0: the one that it was created with."""
    return f"{first}{_LATER}{number}" if number else first


def _slot(key: str) -> int:
    """Return the slot of a topic, which it keeps, or of another object."""
    return slot_of(_first(key).partition("://")[2] or key)


def _policies_of(topic: _Topic) -> dict[str, object]:
    return {"policies": topic.policies, "policies_version": topic.policies_version}


def _shown(opened: WatchOpened, event: LogEvent, *, is_log: bool) -> list[tuple[str, str]]:
    """Return what the watch is sent for an event. ``is_log``: it is sent renames as they are."""
    if event.type.startswith(("slots_", "broker_")):
        return []
    shown = [(event.type, event.key)]
    if event.type == "topic_renamed":
        shown = [("topic_deleted", event.key), ("topic_created", str(event.facts["new_name"]))]
    wanted = [each for each in shown if _lets_through(opened, each[1])]
    return [(event.type, event.key)] if wanted and is_log else wanted


def _lets_through(opened: WatchOpened, key: str) -> bool:
    return key in opened.names if opened.names else key.startswith(opened.prefix)


def _fold(items: Items, event: LogEvent) -> None:
    kind, _, what = event.type.partition("_")
    match what:
        case "created":
            made = {"id": event.id, "version": 1, "properties": dict(event.properties)}
            items[(kind, event.key)] = made
        case "renamed":
            del items[(kind, event.key)]
            items[(kind, str(event.facts["new_name"]))] = {
                "id": event.id,
                "version": event.facts["version"],
                "properties": dict(event.properties),
            }
        case "properties_set":
            before = items[(kind, event.key)]
            version = before["version"]
            assert isinstance(version, int)
            items[(kind, event.key)] = before | {
                "version": version + 1,
                "properties": dict(event.properties),
            }
        case "set" | "cleared":
            before = items[("topic", event.key)]
            version = before["version"]
            assert isinstance(version, int)
            items[("topic", event.key)] = before | {"version": version + 1}
        case "deleted":
            del items[(kind, event.key)]
        case "assigned":
            items[("assignment", event.key)] = {
                "topic_id": event.id,
                "epoch": event.epoch,
                "broker_id": event.broker_id,
                "session_id": event.session_id,
            }
        case "unassigned":
            items.pop(("assignment", event.key), None)
