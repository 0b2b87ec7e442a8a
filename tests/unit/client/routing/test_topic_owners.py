"""Operations on topics find their owner, however often it changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from nextgen.client.routing import topic_owners
from nextgen.client.routing.topic_owners import OwnerUnreachable, TopicOwners
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import (
    ConnectionLost,
    MetadataError,
    Overloaded,
    ProposalLost,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import TOPIC_ADMIN_RETRY_AFTER_MS, TOPIC_OWNER_LOOKUPS_MAX
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.runtime.servers.grpc_server import new_server
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.nextgen.v1.broker_service_pb2 import MessagePosition
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.topic_admin_pb2_grpc import (
    TopicAdminServicer,
    add_TopicAdminServicer_to_server,
)

NAME = parse_topic("persistent://acme/orders/paid-partition-3")
NOBODY = "127.0.0.1:1"
AT = MessagePosition(ledger_id=4, entry_id=2)
STORED = b"0123456789"


class Owner(TopicAdminServicer):
    """A broker that has the unit in one epoch, and refuses with ``errors`` first."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.errors: list[MetadataError] = []
        self.skipped: list[int] = []
        self.units: list[wire.AdminUnit] = []
        self.cut_bytes = 3

    async def SkipMessages(
        self, request: wire.SkipMessagesRequest, context: Any
    ) -> wire.SkipMessagesResponse:
        self.units.append(request.unit)
        if self.errors:
            await abort(context, self.errors.pop(0))
        if request.unit.epoch != self.epoch:
            await abort(context, Refused(RejectionCode.STALE_EPOCH, "look it up again"))
        self.skipped.append(request.entries)
        return wire.SkipMessagesResponse()

    async def PeekMessage(self, request: wire.PeekMessageRequest, context: Any) -> wire.StoredEntry:
        return wire.StoredEntry(
            position=AT, payload=STORED[: self.cut_bytes], payload_bytes=len(STORED)
        )

    async def GetMessage(self, request: wire.GetMessageRequest, context: Any) -> wire.StoredEntry:
        assert request.position == AT
        end = request.offset + self.cut_bytes
        return wire.StoredEntry(
            position=AT, payload=STORED[request.offset : end], payload_bytes=len(STORED)
        )


class World:
    """One owner, and lookups whose answers a test sets."""

    def __init__(self, owner: Owner, endpoint: str) -> None:
        self.owner = owner
        self.endpoint = endpoint
        self.lookups: list[bool] = []
        self.answers: Callable[[int], LookupAnswer] = lambda _: self.answer()
        self.owners = TopicOwners(self.look_up)

    def answer(self, epoch: int = 7, **fields: Any) -> LookupAnswer:
        given = {"topic_id": "t-1", "broker_grpc": self.endpoint, "epoch": epoch}
        return LookupAnswer(**{**given, **fields})

    async def look_up(self, name: TopicName, is_fresh: bool) -> LookupAnswer:
        assert name == NAME
        self.lookups.append(is_fresh)
        return self.answers(len(self.lookups))

    async def skip(self) -> Any:
        return await self.owners.call(NAME, wire.SkipMessagesRequest(entries=5))


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(topic_owners, "TOPIC_OWNER_RETRY_MS", 0)
    owner = Owner(7)
    server = new_server([])
    add_TopicAdminServicer_to_server(owner, server.server)
    port = await server.start("127.0.0.1", 0, "a test")
    world = World(owner, f"127.0.0.1:{port}")
    yield world
    await world.owners.stop()
    await server.stop(grace_ms=0)


async def test_a_call_names_the_unit_of_the_lookup(world: World):
    assert await world.skip() == wire.SkipMessagesResponse()

    assert world.owner.skipped == [5]
    assert world.owner.units == [wire.AdminUnit(topic_id="t-1", unit="p3", epoch=7, name=NAME.text)]
    assert world.lookups == [False]


@pytest.mark.parametrize(
    "trouble",
    [
        {"epoch": 6},
        {"broker_grpc": NOBODY},
        {"broker_grpc": ""},
        {"rejection_code": "NO_BROKER", "retryable": True},
    ],
)
async def test_topic_owner_lookups_max_lookups_find_the_owner_and_one_more_is_not_made(
    world: World, trouble: dict[str, Any]
):
    last = TOPIC_OWNER_LOOKUPS_MAX
    world.answers = lambda count: world.answer(**trouble) if count < last else world.answer()

    await world.skip()
    assert world.lookups == [False] + [True] * (last - 1), (
        "an answer found wrong is not given again"
    )
    world.lookups.clear()
    world.answers = lambda count: world.answer(**trouble) if count <= last else world.answer()
    with pytest.raises(OwnerUnreachable) as raised:
        await world.skip()

    assert len(world.lookups) == last
    assert world.owner.skipped == [5]
    assert raised.value.retry_after_ms == TOPIC_ADMIN_RETRY_AFTER_MS
    assert isinstance(raised.value, Unavailable), "nothing was done"


async def test_a_broker_that_refuses_for_a_moment_is_called_again(world: World):
    world.owner.errors = [Unavailable("storage fails")]

    await world.skip()

    assert world.owner.skipped == [5]


@pytest.mark.parametrize(
    "error",
    [
        Refused(RejectionCode.NOT_FOUND, "no such subscription"),
        Refused(RejectionCode.NOT_EMPTY, "consumers are connected"),
        ProposalLost("it was fenced"),
        Overloaded("too many"),
    ],
)
async def test_what_a_broker_decides_or_may_have_done_is_not_repeated(
    world: World, error: MetadataError
):
    world.owner.errors = [error]

    with pytest.raises(type(error)):
        await world.skip()

    assert len(world.owner.units) == 1
    assert world.owner.skipped == []


@pytest.mark.parametrize("code", [RejectionCode.NOT_FOUND, RejectionCode.PARTITIONED])
async def test_what_a_lookup_rejects_for_good_is_not_looked_up_again(world: World, code: str):
    world.answers = lambda _: world.answer(rejection_code=code)

    with pytest.raises(Refused) as raised:
        await world.skip()

    assert (raised.value.code, len(world.lookups)) == (code, 1)


@pytest.mark.parametrize("cut_bytes", [1, 3, 5, 9, 10, 11])
async def test_an_entry_that_is_too_long_for_one_answer_is_put_together(
    world: World, cut_bytes: int
):
    world.owner.cut_bytes = cut_bytes

    entry = await world.owners.entry(NAME, wire.PeekMessageRequest(number=1))

    assert (entry.payload, entry.position) == (STORED, AT)


async def test_an_entry_that_ends_in_its_middle_is_no_entry(world: World):
    world.owner.cut_bytes = 0

    with pytest.raises(ConnectionLost):
        await world.owners.entry(NAME, wire.PeekMessageRequest(number=1))


def test_every_method_of_the_service_has_its_request():
    methods = {name for name, _ in topic_owners._METHODS.values()}
    served = {name for name in vars(TopicAdminServicer) if not name.startswith("_")}

    # Any broker removes a unit: its topic is gone, so nobody owns it.
    assert methods == served - {"RemoveUnit"}
