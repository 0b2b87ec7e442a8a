"""Single creates of one client share requests: which of them do, and each caller's outcome."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client.discovery.shared_creates import SharedCreates
from nextgen.client.model import CreatedTopic, NewTopic
from nextgen.kernel.errors import (
    ConnectionLost,
    Forbidden,
    InvalidRequest,
    MetadataError,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

TIMEOUT_MS = 1_000
ANSWER_S = 0.1


class Node:
    """Creates whatever it is sent, ``ANSWER_S`` later, or fails; topics of ``t-1…`` lie in 1."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.timeouts_ms: list[int] = []
        self.errors: dict[str, MetadataError] = {}
        """By topic: the error of any request that has it."""
        self.knows_map = True
        self.maps_read = 0
        self.answer_s = ANSWER_S
        self.creates = SharedCreates(self.send, self.shard_of, TIMEOUT_MS)

    async def send(self, topics: list[NewTopic], timeout_ms: int) -> list[CreatedTopic]:
        names = [local(topic.name) for topic in topics]
        self.requests.append(names)
        self.timeouts_ms.append(timeout_ms)
        await asyncio.sleep(self.answer_s)
        for name in names:
            if name in self.errors:
                raise self.errors[name]
        return [CreatedTopic(topic.name, f"id-of-{local(topic.name)}", "", "") for topic in topics]

    def shard_of(self, routing_key: str) -> int | None:
        self.maps_read += 1
        return int(routing_key.rpartition("/")[2][2]) if self.knows_map else None

    def create(self, name: str, **properties: str) -> asyncio.Task[CreatedTopic]:
        return asyncio.ensure_future(
            self.creates.create(NewTopic(f"persistent://a/b/{name}", properties=properties))
        )


def local(name: str) -> str:
    return name.rpartition("/")[2]


async def meeting(node: Node, *names: str) -> list[asyncio.Task[CreatedTopic]]:
    """Begin creates behind one that is under way to each shard of theirs."""
    first = [node.create(name) for name in ("t-0first", "t-1first")]
    creating = [node.create(name) for name in names]
    await asyncio.gather(*first)
    return creating


@run_by(run_virtual)
async def test_creates_one_after_the_other_are_sent_alone_and_ask_for_no_map() -> None:
    node = Node()

    for name in ("t-1a", "t-1b"):
        await node.create(name)

    assert (node.requests, node.maps_read) == ([["t-1a"], ["t-1b"]], 0)


@run_by(run_virtual)
async def test_creates_that_meet_at_a_shard_share_its_next_request() -> None:
    node = Node()

    creating = await meeting(node, "t-1a", "t-2a", "t-1b", "t-1c", "t-2b")
    created = await asyncio.gather(*creating)

    assert node.requests == [
        *(["t-0first"], ["t-1first"], ["t-2a"]),
        *(["t-1a", "t-1b", "t-1c"], ["t-2b"]),
    ]
    assert [each.topic_id for each in created] == [
        f"id-of-t-{name}" for name in ("1a", "2a", "1b", "1c", "2b")
    ]


@run_by(run_virtual)
async def test_creates_of_an_idle_shard_are_sent_at_once() -> None:
    node = Node()
    await asyncio.gather(*await meeting(node, "t-1a"))

    later = node.create("t-1b"), node.create("t-1c")
    await asyncio.sleep(0)

    # The first of all is never in a line: it asks for no map.
    assert node.requests[-2:] == [["t-1b"], ["t-1c"]]
    await asyncio.gather(*later)
    assert repr(node.creates) == "<SharedCreates under_way=0 shards=0>"


@run_by(run_virtual)
async def test_without_a_map_with_properties_or_without_a_topics_name_a_create_goes_alone() -> None:
    node = Node()
    creating = [node.create("t-0first"), node.create("t-1first")]
    creating += [node.create("t-1a", owner="x"), node.create("no/topic/at/all")]
    node.knows_map = False
    creating += [node.create("t-1b")]

    await asyncio.gather(*creating)

    assert node.requests == [[each] for each in ("t-0first", "t-1first", "t-1a", "all", "t-1b")]


@run_by(run_virtual)
async def test_a_create_that_its_caller_gave_up_before_it_was_sent_is_not_carried_out() -> None:
    node = Node()
    first = [node.create("t-0first"), node.create("t-1first")]
    given_up, kept = node.create("t-1a"), node.create("t-1b")
    await asyncio.sleep(ANSWER_S / 2)

    given_up.cancel()

    await asyncio.gather(*first, kept)
    assert node.requests[2:] == [["t-1b"]]
    assert given_up.cancelled()


@run_by(run_virtual)
async def test_the_next_request_is_sent_if_the_caller_of_the_one_under_way_gives_up() -> None:
    node = Node()
    _other, first = node.create("t-0first"), node.create("t-1first")
    waiting = node.create("t-1a")
    await asyncio.sleep(ANSWER_S / 2)

    first.cancel()

    assert (await waiting).is_created


@pytest.mark.parametrize(
    "error",
    [Refused(RejectionCode.NOT_FOUND, "no"), InvalidRequest("no"), Forbidden("no")],
    ids=lambda error: type(error).__name__,
)
@run_by(run_virtual)
async def test_a_fault_of_one_topic_does_not_fail_the_others_of_its_request(
    *,
    error: MetadataError,
) -> None:
    node = Node()
    node.errors["t-1b"] = error

    good, bad, also_good = await meeting(node, "t-1a", "t-1b", "t-1c")

    assert (await good).is_created
    assert (await also_good).is_created
    with pytest.raises(type(error)):
        await bad
    assert node.requests[2:] == [["t-1a", "t-1b", "t-1c"], ["t-1a"], ["t-1b"], ["t-1c"]]


@pytest.mark.parametrize(
    "error",
    [Unavailable("no leader"), ConnectionLost("gone")],
    ids=lambda each: type(each).__name__,
)
@run_by(run_virtual)
async def test_any_other_error_of_a_request_is_every_callers(*, error: MetadataError) -> None:
    node = Node()
    node.errors["t-1b"] = error

    creating = await meeting(node, "t-1a", "t-1b")

    for each in creating:
        with pytest.raises(type(error)):
            await each
    assert node.requests[2:] == [["t-1a", "t-1b"]]


@run_by(run_virtual)
async def test_a_request_has_the_time_of_the_create_that_waited_longest() -> None:
    node = Node()
    first = [node.create("t-0first"), node.create("t-1first")]
    early = node.create("t-1a")
    await asyncio.sleep(0.06)
    late = node.create("t-1b")

    await asyncio.gather(*first, early, late)

    assert node.requests[-1] == ["t-1a", "t-1b"]
    assert node.timeouts_ms == [TIMEOUT_MS, TIMEOUT_MS, pytest.approx(TIMEOUT_MS - 100, abs=2)]


@run_by(run_virtual)
async def test_a_create_whose_time_passed_while_it_waited_is_not_sent() -> None:
    node = Node()
    node.answer_s = TIMEOUT_MS / 1_000
    first = [node.create("t-0first"), node.create("t-1first")]
    early = node.create("t-1a")
    await asyncio.sleep(0.5)
    late = node.create("t-1b")

    with pytest.raises(Unavailable, match="waited"):
        await early

    assert (await late).is_created
    assert node.requests[2:] == [["t-1b"]]
    await asyncio.gather(*first)


@pytest.mark.parametrize("beyond", [0, 1])
@run_by(run_virtual)
async def test_a_shared_request_has_topics_per_create_max_topics(*, beyond: int) -> None:
    node = Node()
    names = [f"t-1{number}" for number in range(TOPICS_PER_CREATE_MAX + beyond)]

    await asyncio.gather(*await meeting(node, *names))

    assert [len(each) for each in node.requests[2:]] == [TOPICS_PER_CREATE_MAX, beyond][
        : 1 + beyond
    ]


@run_by(run_virtual)
async def test_a_closed_client_says_which_creates_were_sent() -> None:
    node = Node()
    (sent,) = await meeting(node, "t-1a")
    await asyncio.sleep(ANSWER_S / 2)
    waiting = node.create("t-0b"), node.create("t-1b")
    await asyncio.sleep(0)

    await node.creates.stop()

    with pytest.raises(ConnectionLost):
        await sent
    with pytest.raises(Unavailable, match="closed before"):
        await waiting[1]
    assert (await waiting[0]).is_created  # Alone: its caller ends it.


@run_by(run_virtual)
async def test_behind_a_create_alone_a_closed_client_sends_nothing() -> None:
    node = Node()
    first = [node.create("t-0first"), node.create("t-1first")]
    waiting = node.create("t-1a")
    await asyncio.sleep(0)

    await node.creates.stop()

    await asyncio.gather(*first)
    with pytest.raises(Unavailable, match="closed before"):
        await waiting
    assert len(node.requests) == 2
