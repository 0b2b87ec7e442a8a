"""Deletions of topics: owners first, then the shard; refused, repeated, broken off at each step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from discovery.service.admin.inventory import InventoryService
from discovery.service.counters import DiscoveryCounters
from nextgen.client.routing.topic_owners import OwnerUnreachable
from nextgen.kernel.errors import ConnectionLost, MetadataError, Refused, Unavailable
from nextgen.kernel.limits.pulsar import (
    TOPIC_DELETION_ATTEMPTS_MAX,
    TOPIC_DELETION_OWNERS_MAX,
)
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer, UnitAssignment
from protos.nextgen.v1.topic_admin_pb2 import EndUnitRequest
from tests.support.discovery.fake_cluster import StaticLink

TOPIC = "persistent://acme/orders/paid"
COMMAND_ID = b"c" * 16


class World:
    """One topic, its units, the brokers that serve them, and the shard that decides.

    Epochs by unit; an ended epoch acknowledges nothing, as the shard checks.
    """

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.idle: set[str] = set()
        """Units without an owner."""
        self.ended: dict[str, int] = {}
        self.in_use: set[str] = set()
        self.unreachable: set[str] = set()
        self.speaks_pulsar = True
        self.is_there = True
        self.outcomes: dict[bytes, str] = {}
        self.steps: list[str] = []
        self.fails: Callable[[str], MetadataError | None] = lambda _step: None
        self.before: Callable[[str], None] = lambda _step: None
        self.asked_at_once = 0
        self.asked_at_once_max = 0
        self.service = InventoryService(
            self,  # type: ignore[arg-type]
            StaticLink(),  # type: ignore[arg-type]
            DiscoveryCounters(),
            self._unused,
            lambda *_created: None,
            owners=self,
        )

    async def _unused(self) -> None:
        raise AssertionError("no default namespace is needed")

    def serve(self, *units: str) -> None:
        for unit in units:
            self.epochs[unit] = 1

    def raise_epoch(self, unit: str) -> None:
        self.epochs[unit] += 1
        self.idle.discard(unit)

    async def delete(
        self,
        *,
        force: bool = False,
        command_id: bytes = COMMAND_ID,
        form: shard_pb.TopicForm = shard_pb.TOPIC_FORM_ANY,
    ) -> Any:
        request = pb.DeleteRequest(command_id=command_id, name=TOPIC, force=force)
        return await self.service.delete_topic(request, 5_000, form)

    # The owners' side -----------------------------------------------------------------------------

    async def call(self, name: TopicName, request: EndUnitRequest) -> None:
        unit = name.unit.text
        step = f"{'check' if request.is_check_only else 'end'} {unit}".strip()
        self.asked_at_once += 1
        self.asked_at_once_max = max(self.asked_at_once_max, self.asked_at_once)
        await asyncio.sleep(0)
        self.asked_at_once -= 1
        self._step(step)
        if unit in self.unreachable:
            raise OwnerUnreachable(f"the broker of {name.text} could not be reached")
        if unit in self.in_use and not request.is_forced:
            raise Refused("IN_USE", f"{name.text} has a producer")
        request.unit.epoch = self.epochs[unit]
        if not request.is_check_only:
            self.ended[unit] = self.epochs[unit]

    # The shard's side -----------------------------------------------------------------------------

    def shard_of_key(self, _routing_key: str) -> int:
        return 1

    async def call_key(
        self, _routing_key: str, request: shard_pb.ShardRequest, *, timeout_ms: int, **_: Any
    ) -> shard_pb.ShardResponse:
        response = shard_pb.ShardResponse()
        body = request.WhichOneof("body")
        if body == "topic_units":
            self._step("units")
            response.topic_units.topic_id = "t-1" if self.is_there else ""
            response.topic_units.units.extend(map(self._unit, self.epochs if self.is_there else ()))
        elif body == "lookup":
            (text,) = request.lookup.topics
            response.lookup.answers.append(self._look_up(text))
        elif body == "move":
            (move,) = request.move.moves
            self._step("move")
            unit = _unit_of(move.topic)
            self.unreachable.discard(unit)
            self.raise_epoch(unit)
            response.move.answers.add(broker_id="b-2", epoch=self.epochs[unit])
        else:
            (command,) = request.execute.commands
            self._step("delete")
            response.execute.results.append(self._executed(command))
        return response

    def _unit(self, unit: str) -> UnitAssignment:
        name = f"{TOPIC}-partition-{unit[1:]}" if unit else TOPIC
        broker_id = "" if unit in self.idle else "b-1"
        return UnitAssignment(unit=unit, name=name, epoch=self.epochs[unit], broker_id=broker_id)

    def _look_up(self, text: str) -> LookupAnswer:
        unit = _unit_of(text)
        if unit in self.idle:
            self.raise_epoch(unit)
        url = "pulsar://b:6650" if self.speaks_pulsar else ""
        return LookupAnswer(broker_id="b-1", broker_url=url, epoch=self.epochs[unit])

    def _executed(self, command: shard_pb.Command) -> shard_pb.CommandResult:
        code = self.outcomes.get(command.command_id)
        if code is None:
            code = self._decided(command.delete_topic)
            if code != "STALE_EPOCH":
                self.outcomes[command.command_id] = code
        return shard_pb.CommandResult(rejection_code=code)

    def _decided(self, body: shard_pb.DeleteTopic) -> str:
        assert body.is_checked
        if not self.is_there:
            return "NOT_FOUND"
        if body.form == shard_pb.TOPIC_FORM_WITHOUT_PARTITIONS and "p0" in self.epochs:
            return "PARTITIONED"
        given = {each.unit: each.epoch for each in body.ended}
        for unit, epoch in self.epochs.items():
            if unit in self.idle and body.force:
                continue
            if unit in self.idle or given.get(unit) != epoch:
                return "STALE_EPOCH"
            if self.speaks_pulsar:
                assert self.ended[unit] == epoch, "its owner may acknowledge more"
        self.is_there = False
        return ""

    def _step(self, step: str) -> None:
        self.steps.append(step)
        self.before(step)
        if (error := self.fails(step)) is not None:
            raise error


def _unit_of(text: str) -> str:
    _, is_partition, number = text.partition("-partition-")
    return f"p{number}" if is_partition else ""


@pytest.fixture
def world() -> World:
    return World()


async def test_a_topic_that_was_never_served_takes_one_request(world: World) -> None:
    await world.delete()

    assert world.steps == ["delete"]
    assert not world.is_there


async def test_a_served_topic_is_ended_by_its_owner_before_it_is_deleted(world: World) -> None:
    world.serve("")

    await world.delete()

    assert world.steps == ["delete", "units", "end", "delete"]
    assert not world.is_there


async def test_a_topic_in_use_is_refused_and_nothing_ends(world: World) -> None:
    world.serve("p0", "p1", "p2")
    world.in_use.add("p2")

    with pytest.raises(Refused) as refused:
        await world.delete()

    assert refused.value.code == "IN_USE"
    assert world.is_there
    assert world.ended == {}


async def test_force_ends_all_partitions_and_deletes_them(world: World) -> None:
    world.serve("p0", "p1", "p2")
    world.in_use.add("p2")

    await world.delete(force=True)

    assert not world.is_there
    assert sorted(world.steps[2:-1]) == ["end p0", "end p1", "end p2"]


async def test_an_idle_topic_is_assigned_to_know_its_subscriptions(world: World) -> None:
    world.serve("")
    world.idle.add("")
    world.in_use.add("")

    with pytest.raises(Refused) as refused:
        await world.delete()

    assert refused.value.code == "IN_USE"
    assert world.is_there


async def test_force_assigns_no_idle_topic(world: World) -> None:
    world.serve("")
    world.idle.add("")

    await world.delete(force=True)

    assert world.steps == ["delete"]
    assert not world.is_there


async def test_a_broker_that_has_no_clients_is_not_asked(world: World) -> None:
    world.serve("")
    world.speaks_pulsar = False

    await world.delete()

    assert "end" not in world.steps
    assert not world.is_there


async def test_a_unit_that_was_assigned_anew_meanwhile_is_ended_again(world: World) -> None:
    """1. Its owner ends. 2. Its client has it assigned again. 3. The deletion must not happen."""
    world.serve("")
    again = iter([True, False])
    world.before = lambda step: (
        world.raise_epoch("") if step == "delete" and world.ended and next(again) else None
    )

    await world.delete(force=True)

    assert world.steps == ["delete", "units", "end", "delete", "units", "end", "delete"]
    assert not world.is_there


async def test_topic_deletion_attempts_max_are_made_and_not_one_more(world: World) -> None:
    world.serve("")
    world.before = lambda step: world.raise_epoch("") if step == "delete" else None

    with pytest.raises(Unavailable, match="again and again"):
        await world.delete(force=True)

    assert world.steps.count("delete") == TOPIC_DELETION_ATTEMPTS_MAX
    assert world.is_there


async def test_topic_deletion_owners_max_are_asked_at_once_and_not_one_more(world: World) -> None:
    world.serve(*(f"p{number}" for number in range(2 * TOPIC_DELETION_OWNERS_MAX)))

    await world.delete()

    assert world.asked_at_once_max == TOPIC_DELETION_OWNERS_MAX


async def test_an_owner_that_cannot_be_reached_keeps_its_topic(world: World) -> None:
    world.serve("")
    world.unreachable.add("")

    with pytest.raises(OwnerUnreachable):
        await world.delete()

    assert world.is_there
    assert "move" not in world.steps


async def test_force_has_another_broker_fence_an_owner_that_cannot_be_reached(
    world: World,
) -> None:
    world.serve("")
    world.unreachable.add("")

    await world.delete(force=True)

    assert world.steps == ["delete", "units", "end", "move", "end", "delete"]
    assert not world.is_there


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("step", ["delete", "units", "check p0", "check p1", "end p0", "end p1"])
async def test_a_deletion_that_breaks_off_at_any_step_is_finished_by_a_repetition(
    world: World, step: str, force: bool
) -> None:
    """The connection is lost before the step, once, at each time that it comes."""
    for at in range(3):
        world.__init__()  # type: ignore[misc]
        world.serve("p0", "p1")
        count = iter(range(99))
        world.fails = lambda given, at=at, count=count: (  # type: ignore[misc]
            ConnectionLost("broken off") if given == step and next(count) == at else None
        )
        try:
            await world.delete(force=force)
        except MetadataError:
            world.fails = lambda _step: None
            await world.delete(force=force)

        assert not world.is_there


async def test_a_repeated_deletion_of_what_is_gone_succeeds_again(world: World) -> None:
    world.serve("")
    await world.delete()

    await world.delete()

    assert world.steps.count("end") == 1
    with pytest.raises(Refused) as refused:
        await world.delete(command_id=b"d" * 16)
    assert refused.value.code == "NOT_FOUND"


async def test_a_topic_of_another_form_is_kept_and_no_owner_is_asked(world: World) -> None:
    world.serve("p0", "p1")

    with pytest.raises(Refused) as refused:
        await world.delete(force=True, form=shard_pb.TOPIC_FORM_WITHOUT_PARTITIONS)

    assert refused.value.code == "PARTITIONED"
    assert world.steps == ["delete"]
    assert world.is_there
