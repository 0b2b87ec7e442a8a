"""Messages of deleted topics: removed once the shard says that the topic is gone, else kept."""

from __future__ import annotations

import pytest

from brokers.domain.holding import Release
from brokers.ports.ledger import StorageFailed
from nextgen.kernel.errors import InvalidRequest, Refused
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.topic_admin_calls import Admin, unit_of
from tests.support.brokers.world import TOPIC, BrokerWorld, settle, topic_id_of


def released_by_deletion(world: BrokerWorld, *, is_deleted: bool) -> Release:
    _, epoch = world.directory.owners[TOPIC]
    unit = Release(topic_id_of(TOPIC), "", TOPIC, epoch, "", 0, "", "", is_deleted=is_deleted)
    world.directory.owners[TOPIC] = ("", epoch)
    world.broker().deliver(unit)
    return unit


@pytest.mark.parametrize("is_deleted", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
async def test_a_release_removes_the_messages_only_if_the_topic_is_deleted(
    world: BrokerWorld, *, is_deleted: bool, is_open: bool
):
    client = world.broker().client()
    await client.producer()
    client.send(0)
    await client.receipts(1)
    if not is_open:
        topic = world.broker().topics.get(TOPIC)
        assert topic is not None
        client.leave()
        await world.broker().topics.close_topic(topic)

    ledger = world.broker().ledger()
    unit = released_by_deletion(world, is_deleted=is_deleted)
    await settle()

    assert (unit.key in world.disk.units) is not is_deleted
    assert world.broker().topics.get(TOPIC) is None
    assert not ledger.is_fenced, "it was closed before its files went"
    if is_open:
        await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)


async def test_a_topic_that_is_created_anew_under_the_name_keeps_its_messages(world: BrokerWorld):
    """Ledgers are keyed by topic ids, which are never given again."""
    client = world.broker().client()
    await client.producer()
    client.send(0)
    await client.receipts(1)
    old = Release("an-earlier-topic", "", TOPIC, 9, "", 0, "", "", is_deleted=True)

    world.broker().deliver(old)
    await settle()

    assert (topic_id_of(TOPIC), "") in world.disk.units
    client.send(1)
    assert len(await client.receipts(2)) == 2


async def test_a_removal_answers_when_the_messages_are_gone_and_may_be_repeated(
    world: BrokerWorld, admin: Admin
):
    """The leader of a shard asks for it until it is answered."""
    client = world.broker().client()
    await client.producer()
    client.send(0)
    await client.receipts(1)
    unit = unit_of(world)

    for _ in range(2):
        await admin.call("RemoveUnit", wire.RemoveUnitRequest(unit=unit))

        assert (unit.topic_id, unit.unit) not in world.disk.units
    await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)


async def test_a_removal_that_storage_fails_is_not_answered_as_done(
    world: BrokerWorld, admin: Admin, monkeypatch: pytest.MonkeyPatch
):
    async def fail(*_: object) -> None:
        raise StorageFailed("the disk is gone")

    monkeypatch.setattr(world.broker().store, "remove", fail)

    error = await admin.refusal("RemoveUnit", wire.RemoveUnitRequest(unit=unit_of(world)))

    assert "the disk is gone" in str(error)
    assert not isinstance(error, Refused)


async def test_a_broker_without_the_unit_removes_it_too(world: BrokerWorld, admin: Admin):
    client = world.broker().client()
    await client.producer()
    client.send(0)
    await client.receipts(1)
    unit = unit_of(world)
    world.broker("b")

    await admin.call("RemoveUnit", wire.RemoveUnitRequest(unit=unit), broker_id="b")

    assert (unit.topic_id, unit.unit) not in world.disk.units


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic_id": ""},
        {"topic_id": "../up"},
        {"topic_id": "f" * 25},
        {"unit": "s" * 200},
        {"unit": "x1"},
        {"unit": "../up"},
        {"name": "persistent://no/"},
    ],
)
async def test_a_unit_that_cannot_be_is_not_removed(
    world: BrokerWorld, admin: Admin, wrong: dict[str, str]
):
    unit = unit_of(world)
    for field, value in wrong.items():
        setattr(unit, field, value)

    error = await admin.refusal("RemoveUnit", wire.RemoveUnitRequest(unit=unit))

    assert isinstance(error, InvalidRequest)
    assert len(str(error)) < 300
