"""Random histories: nothing is decided by permissions that an answered revocation has taken."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nextgen.client.permissions.table import PermissionTable
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.governance.access import Action, Principal, Resource
from nextgen.kernel.limits.stream import WATCH_PROGRESS_MS
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TOPIC
from tests.support.permissions.world import (
    NAMESPACE,
    PRODUCE,
    TOPIC,
    TTL_S,
    PermissionWorld,
)

PAID = Resource.topic(TOPIC)
ROLES = ("ada", "bob")
PREFIX = b"persistent://acme/orders"

_LOST_S = WATCH_PROGRESS_MS / 1_000
"""So long before its last update a silent node may have acknowledged last."""

State = frozenset[tuple[str, str]]
"""Who may produce, and by what: namespace, topic or admin."""

WRITE = (st.sampled_from(ROLES), st.sampled_from(["namespace", "topic", "admin"]), st.booleans())
USE = st.tuples(st.just("use"), st.sampled_from(ROLES))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), *WRITE),
        USE,
        USE,
        st.tuples(
            st.just("lose"),
            st.sampled_from(["disconnect", "stick"]),
            *WRITE,
            st.sampled_from([0.5, 0.9, 1.2, 1.6]),
        ),
        st.tuples(st.just("create_again"), st.sampled_from(["namespace", "topic"])),
        st.tuples(st.just("pass_time"), st.sampled_from([0.1, 0.4, 0.9]), st.booleans()),
        st.tuples(st.just("hear"), st.booleans()),
        st.just(("hear_nothing_yet",)),
        st.tuples(st.just("blink"), *WRITE),
        st.just(("end",)),
    ),
    min_size=4,
    max_size=30,
)


@dataclass
class Connection:
    role: str
    access: object
    is_open: bool = True

    def close(self, _reason):
        self.is_open = False


@dataclass
class History:
    """The shards' side of a history: what was written, and up to where it was answered."""

    world: PermissionWorld
    table: PermissionTable
    states: list[State] = field(default_factory=lambda: [frozenset()])
    answered: int = 0
    connections: list[Connection] = field(default_factory=list)

    @property
    def possible(self):
        """The states by which a node may still decide."""
        return self.states[self.answered :]

    def answer(self):
        """Answer the writes that a shard would answer as effective by now."""
        stream = self.world.streams.get(1)
        if stream is None:
            is_effective = True
        elif stream.is_begun_only:
            is_effective = False
        elif stream.is_connected and not stream.is_stuck:
            is_effective = not set(stream.withheld())
        else:
            is_effective = self.world.now >= stream.heard_at - _LOST_S + TTL_S
        if is_effective:
            self.answered = len(self.states) - 1

    # The steps ------------------------------------------------------------------------------------

    async def use(self, role):
        await use(self.table, self, role)

    async def write(self, role, by, is_given):
        state = self.states[-1] - {(role, by)} | ({(role, by)} if is_given else set())
        self.states.append(frozenset(state))
        actions = [PRODUCE] if is_given else []
        if by == "namespace":
            self.world.grant(role, *actions)
        elif by == "topic":
            self.world.grant(role, *actions, kind=KIND_TOPIC, name=TOPIC)
        else:
            self.world.set_admins([each for each, how in state if how == "admin"])

    async def lose(self, how, role, by, is_given, seconds):
        """Lose touch with the shard while somebody writes there."""
        for stream in self.world.streams.values():
            if how == "stick":
                stream.is_stuck = True
            else:
                stream.disconnect()
        await self.write(role, by, is_given)
        await self.pass_time(seconds, False)

    async def create_again(self, what):
        """Delete an object and create it: it has no permissions then."""
        kind, name = (KIND_NAMESPACE, NAMESPACE) if what == "namespace" else (KIND_TOPIC, TOPIC)
        self.states.append(frozenset(each for each in self.states[-1] if each[1] != what))
        self.world.delete(kind, name)
        self.world.create(kind, name)

    async def pass_time(self, seconds, ticks):
        self.world.pass_time(seconds, ticks=ticks)

    async def hear(self, with_snapshots):
        for stream in self.world.streams.values():
            if stream.is_connected and not (with_snapshots or stream.is_begun_only):
                stream.unstick()
            else:
                stream.disconnect()
                stream.reconnect(with_snapshots=with_snapshots)

    async def hear_nothing_yet(self):
        """Connect again, and have no watch caught up."""
        for stream in self.world.streams.values():
            stream.disconnect()
            stream.begin()

    async def blink(self, *write):
        """Lose touch until a write is answered, and connect before anybody asks anything."""
        await self.lose("disconnect", *write, TTL_S)
        self.answer()
        await self.hear_nothing_yet()

    async def end(self):
        for stream in self.world.streams.values():
            for known in tuple(stream.watches.values())[:1]:
                stream.end(known.name, Unavailable("ended"))


async def live(steps):
    world = PermissionWorld()
    world.set_admins([])
    world.create(KIND_NAMESPACE, NAMESPACE)
    world.create(KIND_TOPIC, TOPIC)
    table = world.table()
    history = History(world, table)
    for name, *arguments in steps:
        await getattr(history, name)(*arguments)
        history.answer()
        check(table, history)
    # Once everything is heard, what is allowed, and what goes on, is what is written.
    await history.hear(True)
    history.answer()
    for each in history.connections:
        if each.is_open and each.access._kept and stream_follows(world.streams[1]):
            assert may(history.states[-1], each.role)
    for role in ROLES:
        await use(table, history, role)
        allowed = table.may_now(Principal(role), Action.PRODUCE, PAID)
        assert allowed is may(history.states[-1], role)
    await table.stop()


async def use(table, history, role):
    """Begin to produce, and to look up, as a client of ``role``, if that is allowed at once."""
    connection = Connection(role, None)
    access = connection.access = table.session(Principal(role), connection.close)
    asking = asyncio.ensure_future(access.check(Action.PRODUCE, PAID))
    for _ in range(8):
        await asyncio.sleep(0)
    if not asking.done() or asking.exception() is not None:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        access.close()
        return
    assert any(may(state, role) for state in history.possible)
    access.keep(Action.PRODUCE, PAID)
    looker = Connection(role, None)
    looker.access = table.session(Principal(role), looker.close)
    looker.access.may_now(Action.LOOK_UP, PAID)
    history.connections += [connection, looker]


def check(table, history):
    for role in ROLES:
        if table.may_now(Principal(role), Action.PRODUCE, PAID):
            assert any(may(state, role) for state in history.possible), "a revoked role may"
    for each in history.connections:
        possible = history.possible
        if each.access.lookable & {PREFIX, TOPIC.encode()}:
            assert any(may(state, each.role) for state in possible), "it is still looked up"
        stream = history.world.streams[1]
        is_heard = stream.is_connected and not stream.is_stuck and not stream.is_begun_only
        if is_heard and each.is_open and each.access._kept and stream_follows(stream):
            assert any(may(state, each.role) for state in possible), "a connection goes on"


def stream_follows(stream):
    """Whether nothing waits to be followed again, which a shard waits for in another way."""
    return {known.name for known in stream.watches.values()} >= {"acme", NAMESPACE, TOPIC}


def may(state, role):
    return any(each == role for each, _ in state)


@settings(max_examples=300)
@given(STEPS)
@example(
    [
        ("write", "ada", "namespace", True),
        ("use", "ada"),
        ("lose", "stick", "ada", "namespace", False, 1.6),
        ("hear", False),
    ]
)
@example(
    [
        ("write", "ada", "namespace", True),
        ("use", "ada"),
        ("blink", "ada", "namespace", False),
    ]
)
@example(
    [
        ("write", "ada", "admin", True),
        ("use", "ada"),
        ("write", "ada", "admin", False),
    ]
)
@example(
    [
        ("write", "ada", "topic", True),
        ("use", "ada"),
        ("lose", "disconnect", "ada", "topic", True, 0.5),
        ("create_again", "topic"),
        ("hear", True),
    ]
)
def test_nothing_is_allowed_by_what_an_answered_revocation_has_taken(steps):
    asyncio.run(live(steps))
