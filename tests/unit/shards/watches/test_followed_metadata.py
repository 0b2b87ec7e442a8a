"""What a broker manager may follow has limits: what is beyond them is refused, never sent.

Over the real streams between a home shard and its broker manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.cluster import SESSION_METADATA_MAX
from nextgen.kernel.limits.stream import METADATA_NAMES_WATCHED_MAX
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Kind,
    LookupAnswer,
)
from shards.domain.broker_session import REASON_NOT_FOLLOWED
from shards.sessions import metadata_watch, session_metadata
from tests.support.observability.promtool import ALERTS
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, FakeBroker, Harness
from tests.support.shards.streamed_homes import StreamedHomes
from tests.support.shards.streamed_shard import LED_S, in_streamed_shard, set_policies

TENANT = NAMESPACE.partition("/")[0]
OTHER_NAMESPACE = f"{TENANT}/returns"
PARENTS = ("tenant", "namespace")
CHANGED = Policies(message_ttl_ms=7)


def last_ttl_ms(broker: FakeBroker, name: str) -> int | None:
    """Return what the broker was sent last of an object's policies, None if never of the object."""
    last = None
    for each in broker.deliveries:
        body = each.assign.topic if each.HasField("assign") else None
        for field in (*PARENTS, "topic"):
            body = getattr(each, field) if each.HasField(field) else body
        if body is not None and body.name == name:
            last = body.policies.message_ttl_ms
    return last


async def check_effective(shard: Harness, broker: FakeBroker, kind: Kind, name: str) -> None:
    """Change an object effectively; behind that the broker's session has nothing earlier of it."""
    await set_policies(shard, kind, name, CHANGED, 60_000)
    assert broker.error is not None or last_ttl_ms(broker, name) in (7, None), name


async def create_topics_elsewhere(shard: Harness, *names: str) -> list[str]:
    """Create topics in ``OTHER_NAMESPACE``, and it first."""
    await shard.execute(create_namespace=pb.CreateNamespace(name=OTHER_NAMESPACE))
    full = [f"persistent://{OTHER_NAMESPACE}/{name}" for name in names]
    specs = [pb.TopicSpec(name=name) for name in full]
    await shard.execute(create_topics=pb.CreateTopics(topics=specs))
    return full


async def refused(shard: Harness, topic: str) -> LookupAnswer:
    (answer,) = await shard.lookup(topic)
    assert (answer.rejection_code, answer.retryable) == ("NO_CAPACITY", True)
    return answer


def refusals(shard: Harness, limit: str) -> float:
    return shard.node_metrics.metadata_refused.labels("1", limit)._value.get()


def test_metadata_names_watched_max_are_followed_and_one_more_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenant, the namespace and two topics are followed; a third topic is one name too many."""
    assert METADATA_NAMES_WATCHED_MAX > 4
    monkeypatch.setattr(metadata_watch, "METADATA_NAMES_WATCHED_MAX", 4)

    async def scenario(shard: Harness, _homes: StreamedHomes) -> None:
        broker = await shard.start_broker("broker-1")
        first, second, third = await shard.create_topics("first", "second", "third")
        answers = await shard.lookup(first, second)
        assert [answer.broker_id for answer in answers] == ["broker-1", "broker-1"]
        assert refusals(shard, "names") == 0

        await refused(shard, third)
        assert refusals(shard, "names") > 0
        await asyncio.sleep(LED_S)

        for topic in (first, second, third):
            await check_effective(shard, broker, KIND_TOPIC, topic)
        assert last_ttl_ms(broker, second) == 7
        assert last_ttl_ms(broker, third) is None

    in_streamed_shard(tmp_path, scenario)


def test_a_topic_that_is_followed_may_be_sent_again_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_watch, "METADATA_NAMES_WATCHED_MAX", 3)

    async def scenario(shard: Harness, _homes: StreamedHomes) -> None:
        broker = await shard.start_broker("broker-1")
        first, second = await shard.create_topics("first", "second")
        await shard.lookup(first)
        given = next(each.assign for each in broker.deliveries if each.HasField("assign"))
        request = pb.AssignRequest(
            broker_id=broker.broker_id, session_id=broker.session_id, assignments=[given]
        )

        response = await shard.ask(assign=request)

        assert response.assign.synced
        await refused(shard, second)

    in_streamed_shard(tmp_path, scenario)


def test_session_metadata_max_parents_are_kept_and_one_more_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenant and one namespace are the session's; another namespace would be a third."""
    assert SESSION_METADATA_MAX > 2
    monkeypatch.setattr(session_metadata, "SESSION_METADATA_MAX", 2)

    async def scenario(shard: Harness, _homes: StreamedHomes) -> None:
        broker = await shard.start_broker("broker-1")
        (topic,) = await shard.create_topics("orders")
        (other,) = await create_topics_elsewhere(shard, "orders")
        (answer,) = await shard.lookup(topic)
        assert answer.broker_id == "broker-1"
        assert refusals(shard, "parents") == 0

        await refused(shard, other)
        assert refusals(shard, "parents") > 0
        await asyncio.sleep(LED_S)

        for kind, name in ((KIND_TENANT, TENANT), (KIND_NAMESPACE, NAMESPACE)):
            await check_effective(shard, broker, kind, name)
            assert last_ttl_ms(broker, name) == 7
        assert last_ttl_ms(broker, OTHER_NAMESPACE) is None

    in_streamed_shard(tmp_path, scenario)


def test_what_one_manager_cannot_follow_is_assigned_to_a_broker_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_metadata, "SESSION_METADATA_MAX", 2)

    async def scenario(shard: Harness, _homes: StreamedHomes) -> None:
        for number in (1, 2):
            await shard.start_broker(f"broker-{number}")
        (topic,) = await shard.create_topics("orders")
        (other,) = await create_topics_elsewhere(shard, "orders")
        (answer,) = await shard.lookup(topic)
        (elsewhere,) = await shard.lookup(other)

        assert {answer.broker_id, elsewhere.broker_id} == {"broker-1", "broker-2"}

    in_streamed_shard(tmp_path, scenario)


async def report(shard: Harness, broker: FakeBroker) -> None:
    """Have a broker report what it holds, as it does to a leader that did not begin its session."""
    objects: list[broker_pb.HeldObject] = []
    for each in broker.deliveries:
        if each.HasField("tenant"):
            tenant = each.tenant
            objects.append(
                broker_pb.HeldObject(
                    kind=KIND_TENANT, name=tenant.name, id=tenant.tenant_id, version=tenant.version
                )
            )
        elif each.HasField("namespace"):
            namespace = each.namespace
            objects.append(
                broker_pb.HeldObject(
                    kind=KIND_NAMESPACE,
                    name=namespace.name,
                    id=namespace.namespace_id,
                    version=namespace.version,
                )
            )
        elif each.HasField("assign"):
            topic, unit = each.assign.topic, broker_pb.HeldUnit(epoch=each.assign.epoch)
            objects.append(
                broker_pb.HeldObject(
                    kind=KIND_TOPIC,
                    name=topic.name,
                    id=topic.topic_id,
                    version=topic.version,
                    units=[unit],
                )
            )
    held = broker_pb.HeldMetadata(objects=objects, complete=True)
    assert broker.connection is not None
    shard.leader.brokers.sessions.receive(broker.connection, broker_pb.BrokerMessage(held=held))
    await asyncio.sleep(0)


async def ends_of_sessions(shard: Harness) -> Sequence[str]:
    events = await shard.events("broker_session_ended")
    return [event.broker_session_ended.reason for event in events]


@pytest.mark.parametrize(("room", "ends"), [(0, []), (-1, [REASON_NOT_FOLLOWED])])
@pytest.mark.parametrize("limit", ["names", "parents"])
@run_by(in_streamed_shard)
async def test_a_session_that_reports_more_than_can_be_followed_ends_before_a_write_is_effective(
    shard: Harness,
    homes: StreamedHomes,
    *,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    room: int,
    ends: list[str],
) -> None:
    """1. A broker has two topics in two namespaces. 2. A leader takes over that may follow exactly
    that, or one less. 3. The broker reports what it holds, and all of it is changed."""
    broker = await shard.start_broker("broker-1")
    topics = [*await shard.create_topics("one"), *await create_topics_elsewhere(shard, "two")]
    await shard.lookup(*topics)
    monkeypatch.setattr(metadata_watch, "METADATA_NAMES_WATCHED_MAX", 5 + room)
    if limit == "parents":
        monkeypatch.setattr(metadata_watch, "METADATA_NAMES_WATCHED_MAX", 100)
        monkeypatch.setattr(session_metadata, "SESSION_METADATA_MAX", 3 + room)
    shard.next_term()
    await broker.connect()
    await report(shard, broker)

    for kind, name in (
        (KIND_TENANT, TENANT),
        (KIND_NAMESPACE, NAMESPACE),
        (KIND_NAMESPACE, OTHER_NAMESPACE),
        *((KIND_TOPIC, topic) for topic in topics),
    ):
        await check_effective(shard, broker, kind, name)

    assert await ends_of_sessions(shard) == ends
    assert (broker.error is not None) == bool(ends)
    assert refusals(shard, limit) == len(ends)


def test_alerts_warn_at_nine_tenths_of_each_limit() -> None:
    alerts = ALERTS.read_text()

    assert f"nextgen_shard_metadata_names > {METADATA_NAMES_WATCHED_MAX * 9 // 10}\n" in alerts
    assert f"nextgen_shard_session_parents > {SESSION_METADATA_MAX * 9 // 10}\n" in alerts
    assert f"At {METADATA_NAMES_WATCHED_MAX} these brokers" in alerts
    assert f"At {SESSION_METADATA_MAX} it gets" in alerts
