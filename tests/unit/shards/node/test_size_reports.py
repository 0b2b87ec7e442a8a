"""What a node says of the sizes of the shards that it leads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protos.nextgen.v1.cluster_service_pb2 import NodeMessage
from shards.domain.states import StateKind
from shards.node.size_reports import SizeReports

TOTALS = {StateKind.TOPIC: 30, StateKind.TENANT: 1, StateKind.NAMESPACE: 2}


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Replica:
    """A replica that leads at a term, or does not."""

    def __init__(self, term: int = 4, *, leads: bool = True, is_over: bool = False) -> None:
        self.log = SimpleNamespace(commit_position=1_000)
        state = SimpleNamespace(
            reads=SimpleNamespace(total=TOTALS.__getitem__), term=SimpleNamespace(is_over=is_over)
        )
        self.leader = SimpleNamespace(term=term, state=state) if leads else None


def reported(replicas: dict[int, Any]) -> tuple[SizeReports, Clock, list[NodeMessage]]:
    sent: list[NodeMessage] = []
    clock = Clock()
    return SizeReports(replicas, sent.append, lambda: 9_000, clock), clock, sent  # type: ignore[arg-type]


def test_the_led_shards_are_reported_in_one_message() -> None:
    replicas = {3: Replica(), 1: Replica(7), 2: Replica(leads=False), 4: Replica(is_over=True)}
    sizes, _, sent = reported(replicas)

    sizes.report()

    (message,) = sent
    shown = [
        (each.shard_id, each.term, each.topics, each.rows) for each in message.shard_sizes.shards
    ]
    assert shown == [(1, 7, 30, 63), (3, 4, 30, 63)]


def test_one_shard_is_reported_alone() -> None:
    sizes, _, sent = reported({3: Replica(), 1: Replica(7), 2: Replica(leads=False)})

    sizes.report(3)
    sizes.report(2)
    sizes.report(9)

    (message,) = sent
    assert [each.shard_id for each in message.shard_sizes.shards] == [3]


def test_a_node_that_leads_nothing_reports_its_disk() -> None:
    sizes, _, sent = reported({2: Replica(leads=False)})

    sizes.report()

    (message,) = sent
    assert list(message.shard_sizes.shards) == []
    assert message.shard_sizes.disk_free_bytes == 9_000


def test_the_rate_is_of_the_time_between_two_reports_of_one_term() -> None:
    replica = Replica()
    sizes, clock, sent = reported({1: replica})

    def rate() -> float:
        sizes.report()
        return sent[-1].shard_sizes.shards[0].commands_per_second

    assert rate() == 0
    clock.now += 10
    replica.log.commit_position += 500
    assert rate() == pytest.approx(50)
    # Twice at one moment, as after a reconnect.
    assert rate() == 0
    clock.now += 5
    replica.log.commit_position += 100
    assert rate() == pytest.approx(20)
    replica.leader.term = 5
    replica.log.commit_position += 100
    clock.now += 5
    assert rate() == 0, "nobody counted for the new leader"
