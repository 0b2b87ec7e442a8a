"""Permissions of topics that were renamed: they are the topic's, by whatever name it is used."""

import pytest

from nextgen.kernel.errors import Forbidden
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import mint_id
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TOPIC
from tests.support.permissions.world import ADA, CONSUME, NAMESPACE, PRODUCE, TOPIC, PermissionWorld

NEW = "persistent://acme/archive/paid"
NEWEST = "persistent://acme/archive/paid-2026"
OLD_NAME, NEW_NAME = Resource.topic(TOPIC), Resource.topic(NEW)
NEVER_OVER = 2**62
SHARDS = 97


def born_at(name: str) -> str:
    """Return the id of a topic that was created as ``name``."""
    return mint_id(slot_of(parse_topic(name).routing_key), bytes(10))


ID = born_at(TOPIC)
ELSEWHERE = mint_id((slot_of(parse_topic(TOPIC).routing_key) + 1) % 4096, bytes(10))
"""Of a topic whose first name was neither of those here."""


@pytest.fixture
def world():
    world = PermissionWorld(shards=SHARDS)
    world.set_admins(["boss"])
    for namespace in (NAMESPACE, "acme/archive"):
        world.create(KIND_NAMESPACE, namespace)
    world.create(KIND_TOPIC, TOPIC)
    world.grant("ada", PRODUCE, kind=KIND_TOPIC, name=TOPIC)
    return world


@pytest.fixture
async def table(world):
    table = world.table()
    yield table
    await table.stop()


@pytest.mark.parametrize("topic_id", [ID, ELSEWHERE])
@pytest.mark.parametrize("is_known_before", [True, False])
async def test_what_was_granted_on_a_topic_is_allowed_by_both_names(
    world, table, topic_id, is_known_before
):
    if is_known_before:
        await table.check(ADA, Action.PRODUCE, OLD_NAME)
    world.rename(TOPIC, NEW, topic_id=topic_id, until_ms=NEVER_OVER)

    for name in (OLD_NAME, NEW_NAME):
        await table.check(ADA, Action.PRODUCE, name)
        with pytest.raises(Forbidden):
            await table.check(ADA, Action.CONSUME, name)


async def test_what_is_taken_back_is_refused_by_the_former_name_too(world, table):
    world.rename(TOPIC, NEW, topic_id=ID, until_ms=NEVER_OVER)
    for name in (OLD_NAME, NEW_NAME):
        await table.check(ADA, Action.PRODUCE, name)

    world.grant("ada", CONSUME, kind=KIND_TOPIC, name=NEW)

    for name in (OLD_NAME, NEW_NAME):
        assert table.may_now(ADA, Action.PRODUCE, name) is False
        assert table.may_now(ADA, Action.CONSUME, name) is True


async def test_a_former_name_follows_its_topic_through_another_rename(world, table):
    world.rename(TOPIC, NEW, topic_id=ID, until_ms=NEVER_OVER)
    await table.check(ADA, Action.PRODUCE, OLD_NAME)
    world.rename(NEW, NEWEST, topic_id=ID, until_ms=NEVER_OVER)
    world.grant("ada", kind=KIND_TOPIC, name=NEWEST)

    with pytest.raises(Forbidden):
        await table.check(ADA, Action.PRODUCE, OLD_NAME)


async def test_a_name_whose_grace_is_over_permits_nothing(world, table):
    await table.check(ADA, Action.PRODUCE, OLD_NAME)
    world.rename(TOPIC, NEW, topic_id=ID, until_ms=1)

    with pytest.raises(Forbidden):
        await table.check(ADA, Action.PRODUCE, OLD_NAME)
    await table.check(ADA, Action.PRODUCE, NEW_NAME)


async def test_a_connection_that_uses_a_renamed_topic_is_not_ended_by_the_rename(world, table):
    reasons = []
    access = table.session(ADA, reasons.append)
    await access.check(Action.PRODUCE, OLD_NAME)
    access.keep(Action.PRODUCE, OLD_NAME)

    world.rename(TOPIC, NEW, topic_id=ID, until_ms=NEVER_OVER)

    assert not reasons
    access.close()


async def test_a_topic_that_gets_a_freed_name_has_permissions_of_its_own(world, table):
    world.rename(TOPIC, NEW, topic_id=ID, until_ms=1)
    with pytest.raises(Forbidden):
        await table.check(ADA, Action.CONSUME, OLD_NAME)
    world.recreate(TOPIC)
    world.grant("ada", CONSUME, kind=KIND_TOPIC, name=TOPIC)

    await table.check(ADA, Action.CONSUME, OLD_NAME)
    with pytest.raises(Forbidden):
        await table.check(ADA, Action.PRODUCE, OLD_NAME)


# By the namespaces of both names ------------------------------------------------------------------

ARCHIVE = "acme/archive"
OTHER = "persistent://globex/archive/paid"


async def test_who_may_use_a_topic_by_its_present_name_may_by_its_former_one(world, table):
    world.rename(TOPIC, NEW, topic_id=ID, until_ms=NEVER_OVER)
    world.grant("ada", CONSUME, name=ARCHIVE)

    await table.check(ADA, Action.CONSUME, OLD_NAME)
    world.grant("ada", name=ARCHIVE)
    with pytest.raises(Forbidden):
        await table.check(ADA, Action.CONSUME, OLD_NAME)


async def test_admins_of_the_present_tenant_use_the_topic_by_its_former_name_too(world, table):
    world.create(KIND_NAMESPACE, "globex/archive")
    world.set_admins(["ada"], "globex")
    with pytest.raises(Forbidden):
        await table.check(ADA, Action.CONSUME, OLD_NAME)
    world.rename(TOPIC, OTHER, topic_id=ELSEWHERE, until_ms=NEVER_OVER)
    await table.check(ADA, Action.CONSUME, OLD_NAME)


async def test_a_former_name_permits_nothing_by_the_present_namespace_behind_its_grace(
    world, table
):
    world.grant("ada", CONSUME, name=ARCHIVE)
    world.rename(TOPIC, NEW, topic_id=ID, until_ms=1)
    with pytest.raises(Forbidden):
        await table.check(ADA, Action.CONSUME, OLD_NAME)


async def test_what_the_former_namespace_permits_ends_with_it_and_the_present_one_goes_on(
    world, table
):
    """1. Ada's consumer uses the former name. 2. The namespace of that name is deleted, as at the
    end of its rename. 3. She stays if the present one permits it, as she was asked for by both."""
    world.grant("ada", CONSUME)
    world.rename(TOPIC, NEW, topic_id=ID, until_ms=NEVER_OVER)
    world.delete(KIND_NAMESPACE, NAMESPACE)
    with pytest.raises(Forbidden):
        await table.check(ADA, Action.CONSUME, OLD_NAME)

    world.grant("ada", CONSUME, name=ARCHIVE)
    await table.check(ADA, Action.CONSUME, OLD_NAME)
    reasons = []
    access = table.session(ADA, reasons.append)
    await access.check(Action.CONSUME, OLD_NAME)
    access.keep(Action.CONSUME, OLD_NAME)
    world.grant("bob", CONSUME, name=ARCHIVE)
    assert not reasons
    world.grant("ada", name=ARCHIVE)
    assert len(reasons) == 1
    access.close()
