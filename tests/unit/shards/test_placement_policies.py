"""The rules of namespaces: read for who waits, then kept true by a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import pytest

from nextgen.client.policies_wire import pack_policies
from nextgen.client.shard_watch import ShardWatch
from nextgen.kernel import placement_limits
from nextgen.kernel.errors import MetadataError, Overloaded
from nextgen.kernel.placement_limits import RULES_FRESH_MS
from nextgen.kernel.policies import NO_POLICIES, PlacementRules, Policies
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, Item, Kind
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards import placement_policies
from shards.adapters.loop_clock import LoopClock
from shards.domain.namespace import NamespaceCreated, NamespacePoliciesSet
from shards.domain.tenant import TenantCreated
from shards.placement_policies import PlacementPolicies
from shards.ports import ShardWatching
from shards.wire_event import DomainEvent
from tests.support.home_shards import FakeHomes
from tests.support.shard_harness import VirtualClock
from tests.support.virtual_time import run_virtual
from tests.support.watch_server import FakeLink, WatchServer, eventually
from tests.support.watch_world import SHARD, WatchWorld

NAMESPACE = "acme/orders"
OTHER = "acme/bills"


def pinned(*brokers: str) -> Policies:
    return Policies(placement=PlacementRules(pinned_brokers=brokers))


def say(homes: FakeHomes, name: str, policies: Policies) -> None:
    homes.set_policies(name, pack_policies(policies))


def rules(said: Policies | MetadataError | None) -> PlacementRules:
    assert isinstance(said, Policies), said
    return said.placement


def with_homes(
    scenario: Callable[[FakeHomes, PlacementPolicies], Coroutine[None, None, None]],
    shards: int = 2,
) -> None:
    async def main() -> None:
        homes = FakeHomes(shards)
        homes.create(KIND_TENANT, "acme")
        homes.create(KIND_NAMESPACE, NAMESPACE)
        homes.create(KIND_NAMESPACE, OTHER)
        subscriber_id = "node-1/topic-controller-1/1"
        policies = PlacementPolicies(subscriber_id, homes, homes, VirtualClock())
        try:
            await scenario(homes, policies)
        finally:
            policies.close()

    run_virtual(main)


def test_what_was_read_is_for_who_asked_and_what_is_watched_for_everybody() -> None:
    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        say(homes, NAMESPACE, pinned("b-1"))

        said = await policies.read([NAMESPACE])

        assert rules(said[NAMESPACE]) == PlacementRules(pinned_brokers=("b-1",))
        assert policies.known(NAMESPACE) is None, "a change behind the read would be missed"
        homes.deliver()
        assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))
        assert homes.reads == ["acme", NAMESPACE]

    with_homes(scenario)


def test_once_known_a_namespace_is_not_read_again_and_every_change_is_seen() -> None:
    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        await policies.find([NAMESPACE, OTHER])
        homes.deliver()
        assert policies.known(NAMESPACE) is NO_POLICIES
        homes.reads.clear()

        say(homes, "acme", Policies(placement=PlacementRules(zones=("z",))))
        say(homes, NAMESPACE, pinned("b-1"))
        assert policies.known(NAMESPACE) is NO_POLICIES
        homes.deliver()

        said = await policies.find([NAMESPACE, OTHER])
        assert rules(said[NAMESPACE]) == PlacementRules(pinned_brokers=("b-1",), zones=("z",))
        assert rules(said[OTHER]) == PlacementRules(zones=("z",))
        say(homes, NAMESPACE, NO_POLICIES)
        homes.deliver()
        assert rules(policies.known(NAMESPACE)) == PlacementRules(zones=("z",))
        assert homes.reads == []

    with_homes(scenario)


def test_a_namespace_that_is_deleted_says_nothing_and_its_successor_what_it_says() -> None:
    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        say(homes, NAMESPACE, pinned("b-1"))
        await policies.read([NAMESPACE])
        homes.deliver()

        homes.delete(NAMESPACE)
        homes.deliver()
        assert rules(policies.known(NAMESPACE)) == PlacementRules()
        homes.create(KIND_NAMESPACE, NAMESPACE)
        say(homes, NAMESPACE, pinned("b-2"))
        homes.deliver()

        assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-2",))

    with_homes(scenario)


def test_a_watch_that_begins_again_is_not_relied_on_before_its_snapshot() -> None:
    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        await policies.read([NAMESPACE])
        homes.deliver()
        say(homes, NAMESPACE, pinned("b-1"))
        for stream in homes.streams:
            stream.reset()

        assert policies.known(NAMESPACE) is None
        said = await policies.find([NAMESPACE])
        assert rules(said[NAMESPACE]) == PlacementRules(pinned_brokers=("b-1",))
        homes.deliver()
        assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))

    with_homes(scenario)


def test_what_a_silent_stream_told_is_not_relied_on() -> None:
    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        await policies.read([NAMESPACE])
        homes.deliver()

        await asyncio.sleep(RULES_FRESH_MS / 1000)
        assert policies.known(NAMESPACE) is NO_POLICIES
        await asyncio.sleep(0.001)
        assert policies.known(NAMESPACE) is None
        homes.deliver()
        assert policies.known(NAMESPACE) is NO_POLICIES

    with_homes(scenario)


def test_behind_a_reconnect_a_watch_is_not_relied_on_before_it_caught_up() -> None:
    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        await policies.read([NAMESPACE])
        homes.deliver()
        say(homes, NAMESPACE, pinned("b-1"))
        for stream in homes.streams:
            stream.heard_at = asyncio.get_running_loop().time()
            stream.is_behind = True

        assert policies.known(NAMESPACE) is None
        homes.deliver()
        assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))

    with_homes(scenario)


def test_a_watch_that_is_ended_is_begun_anew_by_the_next_who_needs_it() -> None:
    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        await policies.read([NAMESPACE, OTHER])
        homes.deliver()
        homes.end_watches(Overloaded("too many watches"))
        say(homes, NAMESPACE, pinned("b-1"))

        assert policies.known(NAMESPACE) is None
        assert policies.namespace_count == 0
        await policies.find([NAMESPACE])
        homes.deliver()
        assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))

    with_homes(scenario)


def test_a_stream_that_fails_costs_what_it_told_and_no_more() -> None:
    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        await policies.read([NAMESPACE])
        homes.deliver()
        for stream in homes.streams:
            stream.failed.set()
        await asyncio.sleep(0.1)

        assert policies.known(NAMESPACE) is None
        say(homes, NAMESPACE, pinned("b-1"))
        await policies.find([NAMESPACE])
        homes.deliver()
        assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))

    with_homes(scenario)


def test_homes_that_cannot_be_asked_are_the_answer() -> None:
    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        homes.is_reachable = False

        said = await policies.find([NAMESPACE])

        assert isinstance(said[NAMESPACE], MetadataError)
        homes.is_reachable = True
        assert rules((await policies.find([NAMESPACE]))[NAMESPACE]) == PlacementRules()

    with_homes(scenario)


def test_the_namespaces_used_longest_ago_are_followed_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement_policies, "NAMESPACES_WATCHED_MAX", 3)
    assert placement_limits.NAMESPACES_WATCHED_MAX > 3

    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        names = [f"acme/n{number}" for number in range(4)]
        for name in names:
            homes.create(KIND_NAMESPACE, name)
        await policies.read(names[:3])
        homes.deliver()
        assert policies.namespace_count == 3
        assert policies.known(names[0]) is NO_POLICIES

        await policies.read(names[3:])
        homes.deliver()

        assert policies.namespace_count == 3
        followed = [name for name in names if policies.known(name) is not None]
        assert followed == [names[0], *names[2:]]
        watched = [
            name for each in homes.streams for one in each.watches.values() for name in one.names
        ]
        assert sorted(watched) == sorted(["acme", *followed])

    with_homes(scenario)


class _LinkedHomes:
    """One home shard, over real streams; its inventory is never told of."""

    def __init__(self, link: FakeLink) -> None:
        self._link = link

    def home_of(self, kind: Kind, name: str) -> int:
        return SHARD

    def manager_shard(self, broker_id: str) -> int:
        return SHARD

    def watch(self, shard_id: int, subscriber_id: str) -> ShardWatching:
        return ShardWatch(shard_id, subscriber_id, self._link)

    async def read(
        self, names: Sequence[ObjectName], *, timeout_ms: int, subscriber_id: str = ""
    ) -> Sequence[Item]:
        return [Item(kind=name.kind, name=name.name) for name in names]


def test_over_real_streams_rules_are_known_and_follow_the_leader(tmp_path: Path) -> None:
    async def main() -> None:
        worlds = [WatchWorld(tmp_path / name) for name in ("one", "two")]
        servers = [WatchServer(world) for world in worlds]
        for world, server in zip(worlds, servers, strict=True):
            world.lead()
            await server.start()
        link = FakeLink()
        link.place(*(server.endpoint for server in servers))
        link.lead(servers[0].endpoint)
        homes = _LinkedHomes(link)
        policies = PlacementPolicies("node-1/topic-controller-1/1", homes, homes, LoopClock())

        async def commit(*events: DomainEvent) -> None:
            for world in worlds:
                await world.commit(*events)

        def knows(*brokers: str) -> bool:
            said = policies.known(NAMESPACE)
            return said is not None and said.placement.pinned_brokers == brokers

        try:
            await commit(
                TenantCreated("t-1", "acme"),
                NamespaceCreated("n-1", NAMESPACE, "t-1"),
                NamespacePoliciesSet(NAMESPACE, "n-1", pack_policies(pinned("b-1")), 1),
            )
            await policies.read([NAMESPACE])
            await eventually(lambda: knows("b-1"))
            await commit(NamespacePoliciesSet(NAMESPACE, "n-1", pack_policies(pinned("b-2")), 2))
            await eventually(lambda: knows("b-2"))
            link.lead(servers[1].endpoint)
            await servers[0].stop()
            await commit(NamespacePoliciesSet(NAMESPACE, "n-1", pack_policies(pinned("b-3")), 3))
            await eventually(lambda: knows("b-3"))
        finally:
            policies.close()
            for server in servers:
                await server.stop()
            for world in worlds:
                await world.close()

    asyncio.run(main())
