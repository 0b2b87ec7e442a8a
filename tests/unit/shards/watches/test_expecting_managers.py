"""What leaves for a broker manager, and how long its watch of that is expected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nextgen.client.changes.index import Change
from nextgen.kernel.errors import Unavailable
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.inventory_pb2 import Topic as TopicMessage
from shards.domain.topic import Topic
from shards.watches.expecting_managers import ExpectingManagers

NAME = "persistent://acme/orders/t"
CHANGES: list[Change] = [(KIND_TOPIC, NAME)]


class World:
    """A state, a manager, its home and the effective writes, as far as an assignment needs them."""

    def __init__(self, version: int = 3, topic_id: str = "id-1") -> None:
        self.topic = Topic(topic_id, NAME, 0, version, "n-1", 0, {})
        self.term = SimpleNamespace(number=5)
        self.watched = False
        self.error: Exception | None = None
        self.steps: list[Any] = []
        self.sent: list[pb.AssignRequest] = []
        made = cast(Any, self)
        self.reads = self.proposer = made
        self.managers = ExpectingManagers(made, made, made, made)

    def load_topics(self, names: Sequence[str]) -> list[Topic]:
        return [self.topic for _ in names]

    async def confirm(self) -> None:
        self.steps.append("confirm")

    def manager_shard(self, _broker_id: str) -> int:
        return 7

    def expect(self, changes: Iterable[Change], shard_id: int) -> None:
        self.steps.append(("expect", list(changes), shard_id))

    def stop_expecting(
        self, changes: Iterable[Change], shard_id: int, *, are_watched: bool
    ) -> None:
        self.steps.append(("stop", list(changes), shard_id, are_watched))

    async def assign(self, request: pb.AssignRequest, *, timeout_ms: int) -> pb.AssignResponse:
        self.steps.append("assign")
        self.sent.append(request)
        if self.error is not None:
            raise self.error
        return pb.AssignResponse(watched=self.watched)


def request(version: int = 3) -> pb.AssignRequest:
    topic = TopicMessage(topic_id="id-1", name=NAME, version=version)
    return pb.AssignRequest(
        broker_id="broker-1", assignments=[pb.TopicAssignment(topic=topic, name=NAME)]
    )


@pytest.mark.parametrize("watched", [False, True])
async def test_what_is_on_its_way_is_expected_until_it_was_given(watched: bool) -> None:
    world = World()
    world.watched = watched

    await world.managers.assign(request(), timeout_ms=1)

    assert world.steps == [("expect", CHANGES, 7), "assign", ("stop", CHANGES, 7, watched)]


async def test_what_may_have_been_given_is_expected_to_be_watched() -> None:
    world = World()
    world.error = Unavailable("no answer")

    with pytest.raises(Unavailable):
        await world.managers.assign(request(), timeout_ms=1)

    assert world.steps[-1] == ("stop", CHANGES, 7, False)


async def test_what_is_only_prepared_is_not_expected() -> None:
    world = World()

    await world.managers.assign(pb.AssignRequest(broker_id="broker-1"), timeout_ms=1)

    assert world.steps == ["assign"]


async def test_a_topic_that_changed_leaves_as_it_is_once_that_is_committed() -> None:
    world = World(version=4)

    await world.managers.assign(request(version=3), timeout_ms=1)

    assert world.steps[1:3] == ["confirm", "assign"]
    assert world.sent[0].assignments[0].topic.version == 4


@pytest.mark.parametrize(
    "world", [World(version=2), World(version=9, topic_id="id-2")], ids=["earlier", "namesake"]
)
async def test_a_topic_that_is_not_a_later_version_of_it_leaves_as_it_was_decided(
    world: World,
) -> None:
    await world.managers.assign(request(version=3), timeout_ms=1)

    topic = world.sent[0].assignments[0].topic
    assert (topic.topic_id, topic.version) == ("id-1", 3)
