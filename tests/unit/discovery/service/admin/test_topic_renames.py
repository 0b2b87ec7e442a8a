"""A rename on its way to the topic's shard: where it goes, what it says, what is forgotten here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from discovery.service.admin.inventory import InventoryService
from discovery.service.counters import DiscoveryCounters
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from tests.support.discovery.fake_cluster import StaticLink, full_update

OLD = "persistent://acme/orders/paid"
COMMAND_ID = bytes(range(16))


class World:
    """The topic's shard; it rejects commands with the code that a test sets."""

    def __init__(self) -> None:
        self.commands: list[shard_pb.ExecuteRequest] = []
        self.keys: list[str] = []
        self.created: list[tuple[int, int, list[str]]] = []
        self.refusal = ""
        self.service = InventoryService(
            self,  # type: ignore[arg-type]
            StaticLink(full_update({3: "a"})),  # type: ignore[arg-type]
            DiscoveryCounters(),
            self._unused,
            self._note_created,
        )

    async def _unused(self) -> None:
        raise AssertionError("no default namespace is needed")

    def _note_created(self, shard_id: int, position: int, names: Iterable[str]) -> None:
        self.created.append((shard_id, position, [*names]))

    def shard_of_key(self, _routing_key: str) -> int:
        return 3

    async def call_key(
        self, routing_key: str, request: shard_pb.ShardRequest, **_: Any
    ) -> shard_pb.ShardResponse:
        self.keys.append(routing_key)
        self.commands.append(request.execute)
        result = shard_pb.CommandResult(id="t-1", version=5, position=70)
        if self.refusal:
            result = shard_pb.CommandResult(rejection_code=self.refusal, message="no")
        response = shard_pb.ShardResponse()
        response.execute.results.append(result)
        return response

    async def rename(self, name: str, new_name: str, **more: Any) -> pb.WriteResponse:
        request = pb.RenameTopicRequest(command_id=COMMAND_ID, name=name, new_name=new_name, **more)
        return await self.service.rename_topic(request, 5_000)


@pytest.fixture
def world() -> World:
    return World()


async def test_the_topics_shard_gets_canonical_names_and_the_grace_as_it_was_given(world):
    written = await world.rename("acme/orders/paid", "done", grace_ms=0)

    (execute,) = world.commands
    (command,) = execute.commands
    assert world.keys == ["acme/orders/paid"]
    assert command.command_id == COMMAND_ID
    rename = command.rename_topic
    assert (rename.name, rename.new_name) == (OLD, "persistent://acme/orders/done")
    assert (rename.HasField("grace_ms"), rename.grace_ms) == (True, 0)
    assert (written.id, written.version, written.shard_id, written.position) == ("t-1", 5, 3, 70)


async def test_without_a_grace_the_shard_decides(world):
    await world.rename(OLD, "acme/archive/paid")
    assert not world.commands[0].commands[0].rename_topic.HasField("grace_ms")


async def test_an_effective_rename_is_asked_for_as_such_at_the_positions_it_was_issued_at(world):
    await world.rename(
        OLD,
        "done",
        consistency=shard_pb.CONSISTENCY_EFFECTIVE,
        issued=[pb.ShardPosition(shard_id=3, position=9)],
    )
    assert world.commands[0].consistency == shard_pb.CONSISTENCY_EFFECTIVE
    assert world.commands[0].issued_position == 9


async def test_what_is_remembered_of_both_names_ends_before_the_answer(world):
    await world.rename(OLD, "done")
    assert world.created == [(3, 70, [OLD, "persistent://acme/orders/done"])]


async def test_a_refusal_is_the_shards_and_ends_nothing(world):
    world.refusal = RejectionCode.ALREADY_EXISTS
    with pytest.raises(Refused) as refused:
        await world.rename(OLD, "done")
    assert refused.value.code == RejectionCode.ALREADY_EXISTS
    assert not world.created


@pytest.mark.parametrize(("name", "new_name"), [("a//b", "x"), (OLD, "a//b"), (OLD, "")])
async def test_a_name_that_is_none_is_refused_before_a_shard_is_asked(world, name, new_name):
    with pytest.raises(InvalidRequest):
        await world.rename(name, new_name)
    assert not world.commands
