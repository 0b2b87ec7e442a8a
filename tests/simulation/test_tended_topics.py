"""The judges of what operators do to topics bite: see ``tender``."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from brokers.domain.position import Position, ledger_id_of
from nextgen.kernel.limits.pulsar import FORCED_DELETION_PAUSE_MS
from protos.nextgen.v1 import events_pb2 as pb
from tests.simulation.test_cluster_invariants import Log
from tests.support.cluster_simulation.clients.residents import Resident
from tests.support.cluster_simulation.clients.workload import Ledger, check_at_end
from tests.support.cluster_simulation.judges.invariants import TENDED_TENANT
from tests.support.cluster_simulation.judges.ledgers import Storage

NAME = f"persistent://{TENDED_TENANT}/all/topic-1"
BEGAN_MS = 1_000_000


@pytest.fixture
def log() -> Log:
    log = Log()
    log.invariants.namespaces[f"{TENDED_TENANT}/all"] = "ns"
    return log


def create(log: Log, topic_id: str, partitions: int = 0) -> None:
    event = pb.TopicCreated(topic_id=topic_id, name=NAME, namespace_id="ns", partitions=partitions)
    log.commit(1, topic_created=event)


def decided_at(log: Log, after_ms: int) -> None:
    """Have what follows be decided so long behind the beginning, and be seen at once."""
    log.invariants._decided_at_ms = BEGAN_MS + after_ms
    log.now = 100.0 + after_ms / 1_000


def delete(log: Log, topic_id: str, *, forced: bool) -> None:
    log.commit(1, topic_deleted=pb.TopicDeleted(name=NAME, topic_id=topic_id, forced=forced))


@pytest.mark.parametrize(
    ("forced", "after_ms", "seen"),
    [
        (True, FORCED_DELETION_PAUSE_MS - 3, 1),
        (True, FORCED_DELETION_PAUSE_MS, 0),
        (False, 1, 0),
    ],
)
def test_a_name_that_comes_back_while_it_rests_is_seen(
    log: Log, forced: bool, after_ms: int, seen: int
) -> None:
    decided_at(log, 0)
    create(log, "t-1")
    delete(log, "t-1", forced=forced)
    decided_at(log, after_ms)
    create(log, "t-2")

    assert len(log.violations) == seen


def test_a_topic_that_shrinks_or_has_an_owner_beyond_its_partitions_is_seen(log: Log) -> None:
    log.session()
    create(log, "t-1", 2)
    log.commit(
        1, topic_partitions_grown=pb.TopicPartitionsGrown(name=NAME, topic_id="t-1", partitions=3)
    )
    assert log.violations == []

    log.commit(
        1, topic_partitions_grown=pb.TopicPartitionsGrown(name=NAME, topic_id="t-1", partitions=2)
    )
    assert "grew from 3 to 2" in log.violations.pop()
    event = pb.TopicAssigned(topic_id="t-1", name=NAME, unit="p2", epoch=1, broker_id="a")
    log.commit(1, topic_assigned=event)
    assert any("the topic has 2 partitions" in each for each in log.violations)


def test_an_owner_of_a_segment_that_no_layout_has_is_seen(log: Log) -> None:
    log.session()
    create(log, "t-1")
    made = pb.ScalableTopicCreated(name=NAME, topic_id="t-1")
    made.segments.add(segment_id=0)
    log.commit(1, scalable_topic_created=made)
    for unit, is_seen in (("s0", False), ("s1", True), ("", True)):
        log.violations.clear()
        log.commit(
            1,
            topic_assigned=pb.TopicAssigned(
                topic_id="t-1", name=NAME, unit=unit, epoch=1, broker_id="a"
            ),
        )
        assert any("the topic has {'s0'}" in each for each in log.violations) is is_seen


def test_an_acknowledged_growth_that_is_lost_is_seen(log: Log) -> None:
    create(log, "t-1", 2)
    ledger = Ledger(partitions={NAME: ("t-1", 3)})

    check_at_end(ledger, log.invariants, log.violations.append)

    assert log.violations == [f"{NAME} has 2 of 3 partitions"]


def test_a_deletion_without_force_has_its_clients_looked_for(log: Log) -> None:
    asked: list[str] = []
    log.invariants.spares_clients = asked.append
    create(log, "t-1")
    delete(log, "t-1", forced=True)
    create(log, "t-2")
    delete(log, "t-2", forced=False)

    assert asked == ["t-2"]


@pytest.mark.parametrize("end", ["deleted", "terminated"])
@pytest.mark.parametrize(("sent_at", "seen"), [(10.0, 0), (10.1, 1)])
def test_a_message_that_was_sent_behind_the_end_and_is_acknowledged_is_seen(
    end: str, sent_at: float, seen: int
) -> None:
    storage, violations = Storage(), list[str]()
    if end == "deleted":
        storage.deleted = {"t-1": 10.0}
    else:
        storage.terminated = {("t-1", ""): 10.0}
    nothing: Any = SimpleNamespace(topics=None)
    resident = Resident(
        "b", nothing, nothing, storage, random.Random(1), lambda *_: None, violations.append
    )
    topic = SimpleNamespace(unit=SimpleNamespace(key=("t-1", ""), name=NAME))

    resident.acknowledged(topic, b"1", Position(ledger_id_of(1, 0), 0), sent_at)

    assert len(violations) == seen
