"""Namespaces and tenants are renamed over shards in this process, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.counters import DiscoveryCounters
from discovery.service.tenancy.parent_renames import ParentRenames
from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.errors import InvalidRequest, MetadataError, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.write import (
    KEPT_NAMES_SHOWN_MAX,
    REFILLS_MAX,
    RENAME_GRACE_MS_MAX,
    TOPIC_RENAMES_IN_FLIGHT_MAX,
)
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, Namespace, Tenant
from tests.support.shards.world import ShardReplica, World, unreachable
from tests.support.slots.renames import Renamer, check_names, formers, living

TIMEOUT_MS = 60_000

OLD, NEW, THIRD = "acme/old", "globex/new", "acme/third"
TOPICS = [f"persistent://{OLD}/t-{number}" for number in range(4)]
TTL = Policies(message_ttl_ms=60_000)
LATER, OTHER = Policies(message_ttl_ms=1_000), Policies(message_ttl_ms=2_000)
AUDIT = "persistent://acme/audit/log"

Hook = Callable[[shard_pb.ShardRequest], None]
IsMet = Callable[[shard_pb.Command], bool]


class Killed(Exception):
    """The process that renames is gone."""


class Client(Renamer):
    """A ``Renamer`` that calls a test before and behind each request."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.before: Hook = lambda _: None
        self.behind: Hook = lambda _: None
        self._overtaking: tuple[IsMet, Callable[[], Awaitable[None]]] | None = None

    def overtake_before(self, is_met: IsMet, overtake: Callable[[], Awaitable[None]]) -> None:
        """Await ``overtake`` once, before the first request with a command that is met."""
        self._overtaking = is_met, overtake

    async def _ask(self, shard: ShardReplica, request: shard_pb.ShardRequest) -> Any:
        self.before(request)
        if self._overtaking and any(map(self._overtaking[0], request.execute.commands)):
            (_, overtake), self._overtaking = self._overtaking, None
            await overtake()
        response = await super()._ask(shard, request)
        self.behind(request)
        return response


class Cluster:
    def __init__(self, turn_ms: int = TIMEOUT_MS) -> None:
        """Without a ``turn_ms`` one turn is enough, however slow the machine is."""
        self.world = World(2)
        self.client = Client(self.world)
        port: Any = self.client.router
        link: Any = self.client.link
        counters = DiscoveryCounters()

        async def nothing() -> None:
            return None

        self.inventory = InventoryService(port, link, counters, nothing, lambda *_created: None)
        listing = ListingService(port, link, counters)
        self.renames = ParentRenames(self.inventory, listing, self.world.shards[1].clock, turn_ms)

    async def fill(self) -> dict[str, str]:
        """Create both tenants, the old namespaces and their topics; return the ids of these."""
        for tenant in ("acme", "globex"):
            await self.inventory.create_tenant(pb.CreateTenantRequest(name=tenant), TIMEOUT_MS)
        for namespace in (OLD, "acme/audit"):
            request = pb.CreateNamespaceRequest(
                name=namespace, properties={"owner": "ada"}, policies=policies_to_proto(TTL)
            )
            await self.inventory.create_namespace(request, TIMEOUT_MS)
        return {name: await self.client.create(name) for name in (*TOPICS, AUDIT)}

    async def rename(
        self, name: str = OLD, new_name: str = NEW, *, timeout_ms: int = TIMEOUT_MS, **more: Any
    ) -> tuple[int, int]:
        """Rename a namespace or tenant; return the topics and the turns that it took."""
        request = pb.RenameParentRequest(name=name, new_name=new_name, **more)
        is_tenant = "/" not in name
        turn_of = self.renames.rename_tenant if is_tenant else self.renames.rename_namespace
        renamed = turns = 0
        while True:
            turn = await turn_of(request, timeout_ms)
            renamed, turns = renamed + turn.renamed, turns + 1
            assert turns < 100
            if turn.is_done:
                return renamed, turns
            request.token = turn.next_token

    async def refusal_of(self, *names: str, **more: Any) -> str:
        with pytest.raises(Refused) as refused:
            await self.rename(*names, **more)
        return refused.value.code

    async def namespace(self, name: str) -> Namespace | None:
        item = (await self.inventory.get_namespace(pb.GetObjectRequest(name=name), TIMEOUT_MS)).item
        return item.namespace if item.HasField("namespace") else None

    async def tenant(self, name: str) -> Tenant | None:
        item = (await self.inventory.get_tenant(pb.GetObjectRequest(name=name), TIMEOUT_MS)).item
        return item.tenant if item.HasField("tenant") else None

    async def set_policies(self, name: str, policies: Policies) -> None:
        kind = KIND_NAMESPACE if "/" in name else KIND_TENANT
        body = shard_pb.SetPolicies(kind=kind, name=name, policies=policies_to_proto(policies))
        command = shard_pb.Command(set_policies=body)
        await self.inventory.execute(name, command, pb.SetPoliciesRequest(), TIMEOUT_MS)


@pytest.fixture
async def cluster():
    cluster = Cluster()
    yield cluster
    cluster.world.close()


def moved(ids: dict[str, str], old: str = OLD, new: str = NEW) -> dict[str, str]:
    return {name.replace(f"//{old}/", f"//{new}/"): topic_id for name, topic_id in ids.items()}


async def test_a_namespace_is_renamed_with_all_that_it_has(cluster):
    ids = await cluster.fill()

    assert await cluster.rename() == (len(TOPICS), 1)

    assert living(cluster.world) == moved(ids)
    assert formers(cluster.world) == {name: ids[name] for name in TOPICS}
    check_names(cluster.world)
    assert await cluster.namespace(OLD) is None
    new = await cluster.namespace(NEW)
    assert new is not None
    assert new.properties["owner"] == "ada"
    assert new.policies == policies_to_proto(TTL)


async def test_a_tenant_is_renamed_with_all_that_it_has(cluster):
    ids = await cluster.fill()
    await cluster.set_policies("acme", LATER)

    assert await cluster.rename("acme", "initech") == (len(TOPICS) + 1, 1)

    assert living(cluster.world) == moved(ids, "acme", "initech")
    assert await cluster.tenant("acme") is None
    tenant = await cluster.tenant("initech")
    assert tenant is not None
    assert tenant.policies == policies_to_proto(LATER)
    for name in ("old", "audit"):
        namespace = await cluster.namespace(f"initech/{name}")
        assert namespace is not None
        assert namespace.policies == policies_to_proto(TTL)
        assert namespace.tenant_id == tenant.tenant_id


@pytest.mark.parametrize(
    ("names", "least_turns"),
    [
        # The topics are renamed, the old namespace is deleted.
        ((OLD, NEW), 2),
        # Two namespaces are checked; their topics are renamed; the tenant is deleted.
        (("acme", "initech"), 5),
    ],
)
async def test_turns_without_time_do_one_thing_each_and_come_to_the_end(names, least_turns):
    cluster = Cluster(turn_ms=0)
    ids = await cluster.fill()

    renamed, turns = await cluster.rename(*names)

    assert living(cluster.world) == moved(ids, *names)
    assert renamed == (len(TOPICS) if "/" in names[0] else len(ids))
    assert turns >= least_turns
    cluster.world.close()


@pytest.mark.parametrize("names", [(OLD, NEW), ("acme", "initech")])
async def test_a_rename_that_was_done_is_accepted_again(cluster, names):
    await cluster.fill()
    await cluster.rename(*names)
    assert await cluster.rename(*names) == (0, 1)


def killing(request_number: int) -> Hook:
    """Return a hook that raises at the request with this number, and at all behind it."""
    numbers = itertools.count()

    def kill(_: shard_pb.ShardRequest) -> None:
        if next(numbers) >= request_number:
            raise Killed

    return kill


async def killed_at(cluster: Cluster, number: int, names: tuple[str, str], is_behind: bool) -> bool:
    """Have a rename die before a request, or behind it; return whether it came so far."""
    hook = killing(number)
    if is_behind:
        cluster.client.behind = hook
    else:
        cluster.client.before = hook
    try:
        await cluster.rename(*names)
    except Killed:
        return True
    finally:
        cluster.client.before = cluster.client.behind = lambda _: None
    return False


def check_all_have_a_name(cluster: Cluster, ids: dict[str, str]) -> None:
    found = living(cluster.world)
    assert sorted(found.values()) == sorted(ids.values())
    leading = found | formers(cluster.world)
    assert {name: leading[name] for name in ids} == ids


@pytest.mark.parametrize("is_behind", [False, True])
async def test_whoever_dies_at_whichever_request_another_goes_on(is_behind):
    for number in itertools.count():
        cluster = Cluster()
        ids = await cluster.fill()
        is_killed = await killed_at(cluster, number, (OLD, NEW), is_behind)
        check_all_have_a_name(cluster, ids)

        await cluster.rename()

        assert living(cluster.world) == moved(ids)
        check_names(cluster.world)
        assert await cluster.namespace(OLD) is None
        cluster.world.close()
        if not is_killed:
            break
    assert number > 15


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("names", [(OLD, NEW), ("acme", "initech")])
async def test_a_rename_whose_runs_all_die_comes_to_the_end(cluster, names, is_behind):
    """A run is killed at its first request, the next at its second, until one comes to its end."""
    ids = await cluster.fill()
    for number in itertools.count():
        if not await killed_at(cluster, number, names, is_behind):
            break
        check_all_have_a_name(cluster, ids)
    assert number > 5
    assert living(cluster.world) == moved(ids, *names)
    check_names(cluster.world)
    is_gone = await (cluster.namespace if "/" in names[0] else cluster.tenant)(names[0])
    assert is_gone is None


# Refused before anything is changed ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "more", "code"),
    [
        ((OLD, OLD), {}, RejectionCode.ALREADY_EXISTS),
        ((OLD, "acme/audit"), {}, RejectionCode.ALREADY_EXISTS),
        (("acme/none", NEW), {}, RejectionCode.NOT_FOUND),
        ((OLD, "nobody/new"), {}, RejectionCode.PARENT_NOT_FOUND),
        ((OLD, NEW), {"grace_ms": RENAME_GRACE_MS_MAX + 1}, RejectionCode.LIMIT_EXCEEDED),
        (("pulsar/system", NEW), {}, RejectionCode.NOT_ALLOWED),
        (("acme", "globex"), {}, RejectionCode.ALREADY_EXISTS),
        (("nobody", "initech"), {}, RejectionCode.NOT_FOUND),
        (("pulsar", "initech"), {}, RejectionCode.NOT_ALLOWED),
    ],
)
async def test_what_is_refused_changes_nothing(cluster, names, more, code):
    ids = await cluster.fill()
    before = await cluster.namespace(OLD), await cluster.tenant("acme")

    assert await cluster.refusal_of(*names, **more) == code

    assert (await cluster.namespace(OLD), await cluster.tenant("acme")) == before
    assert living(cluster.world) == ids


@pytest.mark.parametrize(("name", "new_name"), [("acme", NEW), (OLD, "globex"), (OLD, "a//b")])
async def test_what_is_no_namespace_is_refused(cluster, name, new_name):
    request = pb.RenameParentRequest(name=name, new_name=new_name)
    with pytest.raises(InvalidRequest):
        await cluster.renames.rename_namespace(request, TIMEOUT_MS)


@pytest.mark.parametrize("names", [(OLD, NEW), ("acme", "initech")])
async def test_one_topic_that_keeps_its_name_keeps_all_and_is_named(cluster, names):
    await cluster.fill()
    kept = f"persistent://{OLD}/__change_events"
    ids = living(cluster.world) | {kept: await cluster.client.create(kept)}

    with pytest.raises(Refused, match=kept) as refused:
        await cluster.rename(*names)

    assert refused.value.code == RejectionCode.NOT_ALLOWED
    assert living(cluster.world) == ids
    assert await cluster.namespace(NEW) is None
    assert await cluster.tenant("initech") is None
    old = await cluster.namespace(OLD)
    assert old is not None
    assert dict(old.properties) == {"owner": "ada"}


async def test_more_topics_than_the_new_tenant_allows_are_refused(cluster):
    ids = await cluster.fill()
    await cluster.set_policies("globex", Policies(topics_max=len(TOPICS) - 1))
    assert await cluster.refusal_of() == RejectionCode.LIMIT_EXCEEDED
    assert living(cluster.world) == ids
    await cluster.set_policies("globex", Policies(topics_max=len(TOPICS)))
    assert await cluster.rename() == (len(TOPICS), 1)


async def test_a_namespace_does_not_get_back_to_its_name_while_that_leads_to_its_topics(cluster):
    ids = await cluster.fill()
    await cluster.rename()
    assert await cluster.refusal_of(NEW, OLD) == RejectionCode.NOT_ALLOWED
    assert living(cluster.world) == moved(ids)
    assert await cluster.namespace(OLD) is None


async def test_without_a_grace_a_namespace_gets_back_to_its_name(cluster):
    ids = await cluster.fill()
    await cluster.rename(grace_ms=0)
    assert await cluster.rename(NEW, OLD) == (len(TOPICS), 1)
    assert living(cluster.world) == ids


async def test_what_is_being_deleted_is_not_renamed_and_nothing_is_renamed_to_it(cluster):
    await cluster.fill()
    await cluster.inventory.create_namespace(pb.CreateNamespaceRequest(name=THIRD), TIMEOUT_MS)
    with unreachable(cluster.world, 1), pytest.raises(MetadataError):
        await cluster.inventory.delete_namespace(pb.DeleteRequest(name=THIRD), TIMEOUT_MS)

    assert await cluster.refusal_of(THIRD, NEW) == RejectionCode.NOT_ALLOWED
    assert await cluster.refusal_of(OLD, THIRD) == RejectionCode.ALREADY_EXISTS


# What happens meanwhile ---------------------------------------------------------------------------


def once(is_met: IsMet, trouble: Exception) -> Hook:
    """Return a hook that raises at the first request with a command that is met; if it kills, at
    all behind that too."""
    raised = []

    def hook(request: shard_pb.ShardRequest) -> None:
        if not raised and any(map(is_met, request.execute.commands)):
            raised.append(request)
            raise trouble
        if raised and isinstance(trouble, Killed):
            raise trouble

    return hook


def deletes(command: shard_pb.Command) -> bool:
    return command.HasField("delete_namespace") or command.HasField("delete_tenant")


async def broken_off_before(cluster: Cluster, is_met: IsMet, new_name: str = NEW) -> None:
    """Have a rename die before the first request with such a command."""
    cluster.client.before = once(is_met, Killed())
    with pytest.raises(Killed):
        await cluster.rename(OLD, new_name)
    cluster.client.before = lambda _: None


async def test_topics_that_are_created_by_the_old_name_meanwhile_are_renamed_too(cluster):
    ids = await cluster.fill()
    await broken_off_before(cluster, deletes)
    late = f"persistent://{OLD}/late"
    ids[late] = await cluster.client.create(late)

    assert await cluster.rename() == (1, 1)
    assert living(cluster.world) == moved(ids)


async def test_a_second_rename_to_another_name_is_refused_and_the_first_goes_on(cluster):
    ids = await cluster.fill()
    for is_met in (lambda each: each.HasField("rename_topic"), deletes):
        await broken_off_before(cluster, is_met)
        assert await cluster.refusal_of(OLD, THIRD) == RejectionCode.NOT_ALLOWED
        assert await cluster.refusal_of("acme", "initech") == RejectionCode.NOT_ALLOWED
        assert await cluster.namespace(THIRD) is None
    assert await cluster.rename() == (0, 1)
    assert living(cluster.world) == moved(ids)


async def test_two_renames_to_different_names_at_once_give_all_topics_one_of_them(cluster):
    """1. The first marks the old name. 2. The second does, before the first has its new name. 3.
    The first finds the other mark and renames nothing."""
    ids = await cluster.fill()

    async def overtake() -> None:
        await broken_off_before(cluster, lambda each: each.HasField("rename_topic"), THIRD)

    cluster.client.overtake_before(lambda each: each.HasField("create_namespace"), overtake)
    assert await cluster.refusal_of() == RejectionCode.NOT_ALLOWED
    assert living(cluster.world) == ids
    assert await cluster.rename(OLD, THIRD) == (len(TOPICS), 1)
    assert living(cluster.world) == moved(ids, OLD, THIRD)


@pytest.mark.parametrize("is_taken", [False, True])
async def test_without_what_the_first_rename_created_another_name_may_be_chosen(cluster, is_taken):
    ids = await cluster.fill()
    await broken_off_before(cluster, lambda each: each.HasField("create_namespace"))
    if is_taken:
        await cluster.inventory.create_namespace(pb.CreateNamespaceRequest(name=NEW), TIMEOUT_MS)
        assert await cluster.refusal_of() == RejectionCode.ALREADY_EXISTS
    assert await cluster.rename(OLD, THIRD) == (len(TOPICS), 1)
    assert living(cluster.world) == moved(ids, OLD, THIRD)


async def test_what_is_set_at_the_old_name_meanwhile_is_carried_over(cluster):
    await cluster.fill()
    await broken_off_before(cluster, deletes)
    await cluster.set_policies(OLD, LATER)
    await cluster.rename()
    new = await cluster.namespace(NEW)
    assert new is not None
    assert new.policies == policies_to_proto(LATER)


async def test_what_is_set_at_the_new_name_meanwhile_holds(cluster):
    await cluster.fill()
    await broken_off_before(cluster, deletes)
    await cluster.set_policies(NEW, LATER)
    await cluster.rename()
    new = await cluster.namespace(NEW)
    assert new is not None
    assert new.policies == policies_to_proto(LATER)


async def test_what_is_set_at_both_names_is_refused_until_it_is_the_same(cluster):
    await cluster.fill()
    await broken_off_before(cluster, deletes)
    await cluster.set_policies(OLD, LATER)
    await cluster.set_policies(NEW, OTHER)
    assert await cluster.refusal_of() == RejectionCode.NOT_ALLOWED
    await cluster.set_policies(OLD, OTHER)
    assert await cluster.rename() == (0, 1)


async def test_what_is_set_just_before_the_deletion_is_not_lost(cluster):
    """1. The rename compares both names. 2. The old one's policies are set. 3. Its deletion, at the
    version that was compared, is refused, and the next round carries them over."""
    await cluster.fill()
    await broken_off_before(cluster, deletes)
    versions = []

    def note(request: shard_pb.ShardRequest) -> None:
        for command in filter(deletes, request.execute.commands):
            versions.append(command.delete_namespace.expected_version)
            if len(versions) == 1:
                command.delete_namespace.expected_version -= 1  # As if it had been set since.

    cluster.client.before = note
    await cluster.rename()
    assert len(versions) == 2
    assert versions[0] == versions[1] > 1
    assert await cluster.namespace(OLD) is None


async def test_a_taken_name_in_the_middle_ends_the_run_and_the_next_goes_on(cluster):
    ids = await cluster.fill()
    await broken_off_before(cluster, lambda each: each.HasField("rename_topic"))
    taken = TOPICS[2].replace(OLD, NEW)
    await cluster.client.create(taken)

    with pytest.raises(Refused, match=TOPICS[2]) as refused:
        await cluster.rename()
    assert refused.value.code == RejectionCode.ALREADY_EXISTS
    found = living(cluster.world)
    assert set(ids.values()) <= set(found.values())

    await cluster.client.delete(taken)
    await cluster.rename()
    assert living(cluster.world) == moved(ids)


async def test_a_new_name_that_is_deleted_meanwhile_is_created_again(cluster):
    ids = await cluster.fill()
    await broken_off_before(cluster, lambda each: each.HasField("rename_topic"))
    await cluster.inventory.delete_namespace(pb.DeleteRequest(name=NEW), TIMEOUT_MS)
    assert await cluster.rename() == (len(TOPICS), 1)
    assert living(cluster.world) == moved(ids)


async def test_trouble_that_passes_is_tried_again_in_the_same_turn(cluster):
    ids = await cluster.fill()
    trouble = Unavailable("a unit is being moved")
    cluster.client.before = once(lambda each: each.HasField("rename_topic"), trouble)
    assert await cluster.rename() == (len(TOPICS), 1)
    assert living(cluster.world) == moved(ids)


async def test_trouble_that_lasts_ends_the_turn_with_its_reason(cluster):
    ids = await cluster.fill()

    def refuse(request: shard_pb.ShardRequest) -> None:
        if any(each.HasField("rename_topic") for each in request.execute.commands):
            raise Unavailable("a unit is being moved")

    await broken_off_before(cluster, lambda each: each.HasField("rename_topic"))
    cluster.client.before = refuse
    with pytest.raises(MetadataError, match="being moved"):
        await cluster.rename(timeout_ms=2_000)
    cluster.client.before = lambda _: None
    await cluster.rename()
    assert living(cluster.world) == moved(ids)


async def test_two_runs_of_one_rename_at_once_both_come_to_the_end(cluster):
    ids = await cluster.fill()
    done = await asyncio.gather(*(cluster.rename() for _ in range(3)))
    assert sum(renamed for renamed, _ in done) >= len(TOPICS)
    assert living(cluster.world) == moved(ids)


# Limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusals", [REFILLS_MAX, REFILLS_MAX + 1])
async def test_refills_max_deletions_may_be_refused_in_a_row_and_not_one_more(cluster, refusals):
    await cluster.fill()
    left = refusals

    def refuse(request: shard_pb.ShardRequest) -> None:
        nonlocal left
        if any(map(deletes, request.execute.commands)) and left:
            left -= 1
            raise Refused(RejectionCode.NOT_EMPTY, "something was created")

    cluster.client.before = refuse
    if refusals > REFILLS_MAX:
        assert await cluster.refusal_of() == RejectionCode.NOT_EMPTY
    assert await cluster.rename() == (len(TOPICS) if refusals == REFILLS_MAX else 0, 1)


async def test_kept_names_shown_max_topics_are_named_in_a_refusal_and_not_one_more(cluster):
    await cluster.fill()
    snapshot = f"persistent://{OLD}/__transaction_buffer_snapshot"
    kept = [f"persistent://{OLD}/__change_events", snapshot]
    kept += [f"{snapshot}_indexes", f"{snapshot}_segments"]
    assert len(kept) == KEPT_NAMES_SHOWN_MAX + 1
    for name in kept:
        await cluster.client.create(name)

    with pytest.raises(Refused) as refused:
        await cluster.rename()

    shown = [name for name in kept if f"{name} is" in str(refused.value)]
    assert shown == kept[:KEPT_NAMES_SHOWN_MAX]


async def test_topic_renames_in_flight_max_topics_are_renamed_at_once_and_not_one_more(cluster):
    await cluster.fill()
    for number in range(TOPIC_RENAMES_IN_FLIGHT_MAX + 1 - len(TOPICS)):
        await cluster.client.create(f"persistent://{OLD}/more-{number}")
    in_flight, most = 0, 0

    def count(request: shard_pb.ShardRequest, added: int) -> None:
        nonlocal in_flight, most
        if any(each.HasField("rename_topic") for each in request.execute.commands):
            in_flight += added
            most = max(most, in_flight)

    cluster.client.before = partial(count, added=1)
    cluster.client.behind = partial(count, added=-1)
    assert await cluster.rename() == (TOPIC_RENAMES_IN_FLIGHT_MAX + 1, 1)
    assert most == TOPIC_RENAMES_IN_FLIGHT_MAX
