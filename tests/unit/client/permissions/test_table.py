"""The table of permissions: what is asked, what is followed, and what a change ends."""

import asyncio

import pytest

from nextgen.client.permissions import table as module
from nextgen.client.permissions.known_object import FRESH_SECONDS
from nextgen.client.permissions.target import refusal
from nextgen.kernel.errors import Forbidden, InvalidRequest, Overloaded, Unavailable
from nextgen.kernel.governance.access import CLUSTER, Action, Principal, Resource
from nextgen.kernel.governance.access_rules import AccessRules
from nextgen.kernel.governance.permissions import (
    Permission,
    SubscriptionAuthMode,
    SubscriptionPermission,
)
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.inbound import (
    LOOKABLE_NAMES_MAX,
    PERMISSION_IDLE_MS,
    RECHECKED_PER_TURN_MAX,
)
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TOPIC
from tests.support.permissions.world import (
    ADA,
    BOB,
    CONSUME,
    NAMESPACE,
    PRODUCE,
    ROOT,
    TENANT,
    TOPIC,
    PermissionWorld,
)

PAID = Resource.topic(TOPIC)
ORDERS = Resource.namespace(NAMESPACE)
PREFIX = b"persistent://acme/orders"


@pytest.fixture
def world():
    world = PermissionWorld()
    world.set_admins(["boss"])
    world.create(KIND_NAMESPACE, NAMESPACE)
    world.grant("ada", PRODUCE)
    return world


@pytest.fixture
async def table(world):
    table = world.table()
    yield table
    await table.stop()


class Connection:
    """A connection, as its session sees it."""

    def __init__(self, table, principal=ADA):
        self.reasons = []
        self.access = table.session(principal, self.reasons.append)

    async def keep(self, action, resource=PAID, subscription=""):
        await self.access.check(action, resource, subscription)
        self.access.keep(action, resource, subscription)


async def rounds(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


# Deciding -----------------------------------------------------------------------------------------


async def test_what_is_not_known_is_asked_for_and_then_known(world, table):
    assert table.may_now(ADA, Action.PRODUCE, PAID) is None
    await table.check(ADA, Action.PRODUCE, PAID)

    assert table.may_now(ADA, Action.PRODUCE, PAID) is True
    assert table.may_now(ADA, Action.CONSUME, PAID) is None, "the topic may have its own"
    with pytest.raises(Forbidden, match="ada has no permission to consume topic persistent://"):
        await table.check(ADA, Action.CONSUME, PAID)
    assert table.may_now(ADA, Action.CONSUME, PAID) is False


async def test_refusals_of_clients_are_counted(world, table):
    access = Connection(table, BOB).access
    with pytest.raises(Forbidden):
        await access.check(Action.PRODUCE, PAID)
    assert access.may_now(Action.CONSUME, PAID) is False
    assert table.counts()["permissions_refused"] == 2


async def test_a_superuser_is_never_a_question(world, table):
    world.refuses = Unavailable("no shard answers")

    assert table.may_now(ROOT, Action.CREATE, CLUSTER) is True
    assert table.may_now(ROOT, Action.DELETE, Resource.tenant("no such tenant")) is True
    await table.check(ROOT, Action.PRODUCE, PAID)
    assert table.may_now(ADA, Action.CONNECT, CLUSTER) is True
    assert table.may_now(ADA, Action.CREATE, CLUSTER) is False
    assert not world.streams


async def test_behind_a_proxy_both_roles_need_the_permission(world, table):
    by_proxy = Principal("ada", proxy="gate")
    with pytest.raises(Forbidden, match="ada by gate has no permission"):
        await table.check(by_proxy, Action.PRODUCE, PAID)
    world.grant("gate", PRODUCE)
    await table.check(by_proxy, Action.PRODUCE, PAID)
    world.grant("ada")
    assert table.may_now(by_proxy, Action.PRODUCE, PAID) is False


async def test_the_topic_is_followed_only_if_its_namespace_does_not_allow(world, table):
    await table.check(ADA, Action.PRODUCE, PAID)
    assert {known.name for known in world.streams[1].watches.values()} == {TENANT, NAMESPACE}

    world.create(KIND_TOPIC, TOPIC)
    world.grant("bob", CONSUME, kind=KIND_TOPIC, name=TOPIC)
    await table.check(BOB, Action.CONSUME, PAID)
    assert {known.name for known in world.streams[1].watches.values()} == {
        TENANT,
        NAMESPACE,
        TOPIC,
    }


@pytest.mark.parametrize(
    "name",
    [
        "persistent://acme/orders/paid-partition-7",
        "topic://acme/orders/paid",
        "segment://acme/orders/paid/0000-7fff-3",
    ],
)
async def test_partitions_segments_and_scalable_topics_have_the_permissions_of_their_name(
    world, table, name
):
    world.create(KIND_TOPIC, TOPIC)
    world.grant("bob", CONSUME, kind=KIND_TOPIC, name=TOPIC)

    await table.check(BOB, Action.CONSUME, Resource.topic(name))
    with pytest.raises(Forbidden):
        await table.check(BOB, Action.CONSUME, Resource.topic("persistent://acme/orders/other"))


async def test_absent_tenants_and_namespaces_permit_nothing(table):
    for name in ("persistent://nobody/orders/x", "persistent://acme/absent/x"):
        with pytest.raises(Forbidden):
            await table.check(ADA, Action.PRODUCE, Resource.topic(name))
    with pytest.raises(Forbidden):
        await table.check(ADA, Action.READ, Resource.tenant("nobody"))


async def test_a_name_that_is_none_is_refused_and_nothing_is_asked(world, table):
    with pytest.raises(Forbidden):
        await table.check(ADA, Action.PRODUCE, Resource.topic("persistent://acme"))
    assert not world.streams


async def test_admins_of_the_tenant_may_do_everything_below_it(world, table):
    boss = Principal("boss")
    for action in (Action.CREATE, Action.DELETE, Action.CHANGE, Action.LIST, Action.READ):
        await table.check(boss, action, ORDERS)
    await table.check(boss, Action.CONSUME, PAID, "anything")
    world.set_admins([])
    assert table.may_now(boss, Action.CREATE, ORDERS) is False


async def test_a_subscription_that_is_kept_for_others_is_refused(world, table):
    world.set_policies(
        KIND_NAMESPACE,
        NAMESPACE,
        Policies(
            permissions=(Permission("ada", (CONSUME,)), Permission("bob", (CONSUME,))),
            subscription_permissions=(SubscriptionPermission("audit", ("bob",)),),
            subscription_auth_mode=SubscriptionAuthMode.PREFIX,
        ),
    )
    await table.check(ADA, Action.CONSUME, PAID, "ada-mine")
    for subscription in ("audit", "other"):
        with pytest.raises(Forbidden, match=f"with subscription {subscription}"):
            await table.check(ADA, Action.CONSUME, PAID, subscription)


async def test_a_changed_permission_counts_at_once(world, table):
    await table.check(ADA, Action.PRODUCE, PAID)
    world.grant("ada")
    with pytest.raises(Forbidden):
        await table.check(ADA, Action.PRODUCE, PAID)
    world.grant("ada", PRODUCE)
    await table.check(ADA, Action.PRODUCE, PAID)
    world.clear_policies(KIND_NAMESPACE, NAMESPACE)
    assert table.may_now(ADA, Action.PRODUCE, PAID) is not True


async def test_a_namespace_that_is_created_again_has_no_permissions(world, table):
    await table.check(ADA, Action.PRODUCE, PAID)
    world.delete(KIND_NAMESPACE, NAMESPACE)
    assert table.may_now(ADA, Action.PRODUCE, PAID) is not True
    world.create(KIND_NAMESPACE, NAMESPACE)
    assert table.may_now(ADA, Action.PRODUCE, PAID) is not True
    world.grant("ada", PRODUCE)
    assert table.may_now(ADA, Action.PRODUCE, PAID) is True


async def test_a_deleted_tenant_has_no_admins(world, table):
    boss = Principal("boss")
    await table.check(boss, Action.READ, Resource.tenant(TENANT))
    world.delete_tenant()
    assert table.may_now(boss, Action.READ, Resource.tenant(TENANT)) is False


# Following ----------------------------------------------------------------------------------------


async def test_a_thousand_askers_of_one_namespace_wait_for_one_watch(world, table):
    world.stream(1).is_held = True
    asking = [
        asyncio.ensure_future(table.check(ADA, Action.PRODUCE, Resource.topic(f"{TOPIC}-{number}")))
        for number in range(1_000)
    ]
    await rounds()
    assert not any(task.done() for task in asking)
    world.streams[1].release()
    await asyncio.gather(*asking)

    assert world.streams[1].added == 2, "one of the tenant and one of the namespace"


async def test_facts_of_a_silent_stream_are_used_for_a_limited_time(world, table):
    await table.check(ADA, Action.PRODUCE, PAID)
    world.pass_time(FRESH_SECONDS - 0.01, ticks=False)
    assert table.may_now(ADA, Action.PRODUCE, PAID) is True
    world.pass_time(0.01, ticks=False)
    assert table.may_now(ADA, Action.PRODUCE, PAID) is None


async def test_while_permissions_cannot_be_read_nothing_is_allowed(world, table, monkeypatch):
    monkeypatch.setattr(module, "PERMISSION_READ_MS", 20)
    await table.check(ADA, Action.PRODUCE, PAID)
    world.streams[1].disconnect()

    with pytest.raises(Unavailable, match="cannot be read at the moment"):
        await table.check(ADA, Action.PRODUCE, PAID)
    world.streams[1].reconnect()
    await table.check(ADA, Action.PRODUCE, PAID)


async def test_a_check_waits_for_permission_read_ms(world, table, monkeypatch):
    monkeypatch.setattr(module, "PERMISSION_READ_MS", 200)
    world.stream(1).is_held = True
    asking = asyncio.ensure_future(table.check(ADA, Action.PRODUCE, PAID))
    await asyncio.sleep(0.1)
    world.streams[1].release()
    await asking


async def test_a_check_waits_for_a_stream_that_comes_back(world, table):
    await table.check(ADA, Action.PRODUCE, PAID)
    world.streams[1].disconnect()
    world.grant("ada")
    asking = asyncio.ensure_future(table.check(ADA, Action.PRODUCE, PAID))
    await rounds()
    assert not asking.done()
    world.streams[1].reconnect()
    with pytest.raises(Forbidden):
        await asking


async def test_what_a_shard_refuses_is_told_and_asked_again(world, table):
    world.refuses = Overloaded("this stream has too many watches")
    with pytest.raises(Overloaded):
        await table.check(ADA, Action.PRODUCE, PAID)
    world.refuses, world.has_map = None, False
    with pytest.raises(Unavailable):
        await table.check(ADA, Action.PRODUCE, PAID)
    world.has_map = True
    await table.check(ADA, Action.PRODUCE, PAID)


async def test_a_watch_that_its_shard_ends_is_begun_again_by_the_next_question(world, table):
    await table.check(ADA, Action.PRODUCE, PAID)
    world.streams[1].end(NAMESPACE, InvalidRequest("no more"))
    assert table.may_now(ADA, Action.PRODUCE, PAID) is None
    await table.check(ADA, Action.PRODUCE, PAID)


async def test_waiting_for_a_watch_that_ends_fails_retryably(world, table):
    world.stream(1).is_held = True
    asking = asyncio.ensure_future(table.check(ADA, Action.PRODUCE, PAID))
    await rounds()
    world.streams[1].end(TENANT, Overloaded("too much"))
    with pytest.raises(Unavailable, match="too much"):
        await asking


async def test_what_is_kept_is_followed_again_when_its_watch_ends(world, table, monkeypatch):
    monkeypatch.setattr(module, "PERMISSION_RETRY_MS", 1)
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    world.streams[1].end(NAMESPACE, Overloaded("no more"))
    world.grant("ada")
    assert not connection.reasons, "nobody said so yet"
    await asyncio.sleep(0.05)

    assert connection.reasons == ["ada may no longer produce topic persistent://acme/orders/paid"]


async def test_objects_are_followed_at_the_shard_that_has_them_now(world, table):
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    table.cluster_changed(1)
    world.moved = 1
    table.cluster_changed(1)
    assert world.streams[1].watches, "the map is the same"
    table.cluster_changed(2)
    assert not world.streams[1].watches
    await table.check(ADA, Action.PRODUCE, PAID)
    world.grant("ada")

    assert len(connection.reasons) == 1
    assert {known.name for known in world.streams[2].watches.values()} == {TENANT, NAMESPACE}


async def test_permission_objects_max_are_followed_and_the_least_used_go(world, table, monkeypatch):
    monkeypatch.setattr(module, "PERMISSION_OBJECTS_MAX", 3)
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    for number in range(5):
        with pytest.raises(Forbidden):
            await table.check(BOB, Action.READ, Resource.tenant(f"t{number}"))
    assert table.gauges()["permission_objects"] == 3
    assert {known.name for known in world.streams[1].watches.values()} == {
        TENANT,
        NAMESPACE,
        "t4",
    }
    await table.check(Principal("boss"), Action.READ, Resource.tenant(TENANT))
    with pytest.raises(Forbidden):
        await table.check(BOB, Action.READ, Resource.tenant("t5"))

    monkeypatch.setattr(module, "PERMISSION_OBJECTS_MAX", 2)
    table._forget(table._objects[next(key for key in table._objects if key[1] == "t5")])
    with pytest.raises(Overloaded, match="2 objects are in use"):
        await table.check(BOB, Action.READ, Resource.tenant("t6"))


async def test_after_permission_idle_ms_only_what_is_kept_is_followed(world, table):
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    with pytest.raises(Forbidden):
        await table.check(BOB, Action.READ, Resource.tenant("other"))
    world.pass_time(PERMISSION_IDLE_MS / 1_000 - 1)
    table._forget_idle()
    assert len(world.streams[1].watches) == 3
    world.pass_time(1)
    table._forget_idle()
    assert {known.name for known in world.streams[1].watches.values()} == {TENANT, NAMESPACE}
    connection.access.close()
    world.pass_time(PERMISSION_IDLE_MS / 1_000)
    table._forget_idle()
    assert not world.streams[1].watches


# Keeping ------------------------------------------------------------------------------------------


async def test_a_revoked_permission_ends_what_is_kept_by_it_before_it_is_acknowledged(world, table):
    ada, bob = Connection(table), Connection(table, BOB)
    world.grant("bob", PRODUCE)
    await ada.keep(Action.PRODUCE)
    await bob.keep(Action.PRODUCE)
    world.grant("ada")

    # The fake shard has returned from the listener: now the stream would acknowledge.
    assert ada.reasons == ["ada may no longer produce topic persistent://acme/orders/paid"]
    assert not bob.reasons
    assert table.counts() == {"permissions_refused": 0, "permissions_revoked": 1}
    assert table.sessions == 1


async def test_what_is_kept_too_late_ends_in_the_next_turn(world, table):
    connection = Connection(table)
    await connection.access.check(Action.PRODUCE, PAID)
    world.grant("ada")
    connection.access.keep(Action.PRODUCE, PAID)
    assert not connection.reasons
    await rounds()
    assert len(connection.reasons) == 1


async def test_what_is_released_or_closed_is_not_revoked(world, table):
    released, closed = Connection(table), Connection(table)
    for each in (released, closed):
        await each.keep(Action.PRODUCE)
    released.access.keep(Action.PRODUCE, PAID)
    released.access.release(Action.PRODUCE, PAID)
    released.access.release(Action.PRODUCE, PAID)
    released.access.release(Action.PRODUCE, PAID)
    closed.access.close()
    closed.access.close()
    world.grant("ada")
    assert not released.reasons
    assert not closed.reasons


async def test_what_is_kept_twice_is_revoked_until_it_is_released_twice(world, table):
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    connection.access.keep(Action.PRODUCE, PAID)
    connection.access.release(Action.PRODUCE, PAID)
    world.grant("ada")
    assert len(connection.reasons) == 1


async def test_what_another_permission_allows_goes_on(world, table):
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    world.set_admins(["ada"])
    world.grant("ada")
    assert not connection.reasons
    world.set_admins([])
    assert len(connection.reasons) == 1


async def test_who_loses_the_namespaces_permission_comes_back_by_the_topics_own(world, table):
    world.create(KIND_TOPIC, TOPIC)
    world.grant("ada", PRODUCE, kind=KIND_TOPIC, name=TOPIC)
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    world.grant("ada")
    assert len(connection.reasons) == 1, "the topic was never asked"

    again = Connection(table)
    await again.keep(Action.PRODUCE)
    world.grant("ada", kind=KIND_TOPIC, name=TOPIC)
    assert len(again.reasons) == 1


async def test_subscriptions_are_judged_by_their_own_permissions(world, table):
    consumers = Policies(permissions=(Permission("ada", (CONSUME,)),))
    world.set_policies(KIND_NAMESPACE, NAMESPACE, consumers)
    mine, audit = Connection(table), Connection(table)
    await mine.keep(Action.CONSUME, PAID, "mine")
    await audit.keep(Action.CONSUME, PAID, "audit")
    world.set_policies(
        KIND_NAMESPACE,
        NAMESPACE,
        Policies(
            permissions=consumers.permissions,
            subscription_permissions=(SubscriptionPermission("audit", ("bob",)),),
        ),
    )
    assert not mine.reasons
    assert len(audit.reasons) == 1


async def test_a_superuser_keeps_everything(world, table):
    root = Connection(table, ROOT)
    await root.keep(Action.PRODUCE)
    await table.check(ADA, Action.PRODUCE, PAID)
    world.delete(KIND_NAMESPACE, NAMESPACE)
    assert not root.reasons


@pytest.mark.parametrize("with_snapshots", [False, True])
async def test_what_is_kept_goes_on_over_a_lost_stream_and_ends_when_it_is_read_again(
    world, table, with_snapshots
):
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    world.streams[1].disconnect()
    world.grant("ada")
    world.pass_time(60)
    assert not connection.reasons
    world.streams[1].reconnect(with_snapshots=with_snapshots)
    assert len(connection.reasons) == 1


async def test_a_reset_that_brings_the_same_revokes_nothing(world, table):
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    world.streams[1].disconnect()
    world.streams[1].reconnect(with_snapshots=True)
    assert not connection.reasons


async def test_a_reset_that_brings_nothing_means_that_nothing_is_there(world, table):
    connection = Connection(table)
    await connection.keep(Action.PRODUCE)
    world.streams[1].disconnect()
    world.delete(KIND_NAMESPACE, NAMESPACE)
    world.streams[1].reconnect(with_snapshots=True)
    assert len(connection.reasons) == 1


async def test_rechecked_per_turn_max_are_judged_in_a_turn_and_the_change_waits_for_the_last(
    world, table
):
    count = 3 * RECHECKED_PER_TURN_MAX
    connections = [Connection(table) for _ in range(count)]
    for each in connections:
        await each.keep(Action.PRODUCE)
    stream = world.streams[1]
    namespace = next(id for id, known in stream.watches.items() if known.name == NAMESPACE)
    world.grant("ada")

    def closed():
        return sum(bool(each.reasons) for each in connections)

    assert RECHECKED_PER_TURN_MAX - 1 <= closed() <= RECHECKED_PER_TURN_MAX
    assert set(stream.withheld()) == {namespace}
    assert table.may_now(ADA, Action.PRODUCE, PAID) is not True, "no decision waits for that"
    before = stream.acknowledgements
    while set(stream.withheld()):
        assert stream.acknowledgements == before
        await asyncio.sleep(0)
    assert closed() == count
    assert stream.acknowledgements == before + 1


async def test_a_connection_that_fails_to_close_keeps_no_other_open(world, table):
    def fail(_reason):
        raise RuntimeError("oops")

    broken = table.session(ADA, fail)
    await broken.check(Action.PRODUCE, PAID)
    broken.keep(Action.PRODUCE, PAID)
    other = Connection(table)
    await other.keep(Action.PRODUCE)
    world.grant("ada")
    assert len(other.reasons) == 1


# Looking up without a question --------------------------------------------------------------------


async def test_a_namespace_that_allows_it_is_looked_up_without_a_question(world, table):
    access = Connection(table).access
    assert access.lookable == set()
    assert access.may_now(Action.LOOK_UP, PAID) is None
    await access.check(Action.LOOK_UP, PAID)
    assert access.lookable == {PREFIX}

    other = Connection(table).access
    assert other.may_now(Action.LOOK_UP, Resource.topic("non-persistent://acme/orders/x"))
    assert other.lookable == {b"non-persistent://acme/orders"}
    world.grant("ada")
    assert access.lookable == other.lookable == set()


async def test_a_topic_that_allows_it_by_itself_is_looked_up_by_its_whole_name(world, table):
    world.create(KIND_TOPIC, TOPIC)
    world.grant("bob", CONSUME, kind=KIND_TOPIC, name=TOPIC)
    access = Connection(table, BOB).access
    await access.check(Action.LOOK_UP, Resource.topic(f"{TOPIC}-partition-3"))
    assert access.lookable == {f"{TOPIC}-partition-3".encode()}
    world.grant("bob", kind=KIND_TOPIC, name=TOPIC)
    assert access.lookable == set()


async def test_a_change_of_one_namespace_leaves_the_others(world, table):
    world.create(KIND_NAMESPACE, "acme/bills")
    world.grant("ada", CONSUME, name="acme/bills")
    access = Connection(table).access
    for name in (TOPIC, "persistent://acme/bills/x"):
        await access.check(Action.LOOK_UP, Resource.topic(name))
    world.grant("ada")
    assert access.lookable == {b"persistent://acme/bills"}
    world.set_admins(["other"])
    assert access.lookable == set()


async def test_names_are_dropped_when_their_stream_is_silent(world, table):
    access = Connection(table).access
    await access.check(Action.LOOK_UP, PAID)
    for _ in range(5):
        world.pass_time(FRESH_SECONDS / 2)
        assert access.lookable == {PREFIX}
    world.pass_time(FRESH_SECONDS - 0.01, ticks=False)
    assert access.lookable == {PREFIX}
    world.pass_time(0.01, ticks=False)
    assert access.lookable == set()


async def test_names_are_dropped_when_a_stream_came_back_unnoticed(world, table):
    access = Connection(table).access
    await access.check(Action.LOOK_UP, PAID)
    world.streams[1].disconnect()
    world.pass_time(60, ticks=False)
    world.streams[1].begin()
    # It is heard, and its watches have not caught up yet.
    assert access.lookable == set()


async def test_one_silent_shard_drops_no_names_of_another():
    world = PermissionWorld(shards=97)
    world.set_admins(["ada"])
    world.set_admins(["ada"], tenant="b")
    for namespace in ("acme/orders", "b/orders"):
        world.create(KIND_NAMESPACE, namespace)
    table = world.table()
    access = Connection(table).access
    for namespace in ("acme/orders", "b/orders"):
        await access.check(Action.LOOK_UP, Resource.topic(f"persistent://{namespace}/x"))
    silent = {world.shard_of_key(key) for key in ("b", "b/orders")}
    assert silent.isdisjoint({world.shard_of_key(key) for key in ("acme", "acme/orders")})
    for shard_id in silent:
        world.streams[shard_id].is_connected = False
    for _ in range(4):
        world.pass_time(FRESH_SECONDS / 2)
        names = access.lookable
    assert names == {b"persistent://acme/orders"}
    await table.stop()


async def test_lookable_names_max_are_kept_and_one_more_begins_anew(world, table):
    access = Connection(table, ROOT).access
    for number in range(LOOKABLE_NAMES_MAX):
        assert access.may_now(Action.LOOK_UP, Resource.topic(f"persistent://acme/n{number}/x"))
    assert len(access.lookable) == LOOKABLE_NAMES_MAX
    assert access.may_now(Action.LOOK_UP, Resource.topic("persistent://acme/one-more/x"))
    assert access.lookable == {b"persistent://acme/one-more"}


async def test_a_closed_session_looks_nothing_up(world, table):
    access = Connection(table).access
    await access.check(Action.LOOK_UP, PAID)
    access.close()
    assert access.lookable == set()
    assert access.may_now(Action.LOOK_UP, PAID) is True
    assert access.lookable == set()
    access.keep(Action.PRODUCE, PAID)
    world.grant("ada")


async def test_wildcards_count_where_they_are_allowed(world):
    world.grant("ad*", CONSUME)
    for is_on, allowed in ((True, True), (False, False)):
        table = world.table(AccessRules(wildcards=is_on))
        if allowed:
            await table.check(ADA, Action.CONSUME, PAID)
        else:
            with pytest.raises(Forbidden):
                await table.check(ADA, Action.CONSUME, PAID)
        await table.stop()


def test_a_refusal_says_who_and_what():
    principal = Principal("ada", "gate")
    assert refusal(principal, Action.CONSUME, PAID, "mine") == (
        f"ada by gate has no permission to consume topic {TOPIC} with subscription mine"
    )
