"""The rules of namespaces: read for who waits, then kept true by a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.client.wire.policies import pack_policies
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.kernel.governance.auto_creation import AutoCreation as Rule
from nextgen.kernel.governance.policies import (
    NO_POLICIES,
    AutoCreation,
    PlacementRules,
    Policies,
)
from nextgen.kernel.limits import placement as placement_limits
from nextgen.kernel.limits.placement import METADATA_USED_MS, RULES_FRESH_MS, RULES_READ_MS
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, Item, Kind
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.adapters.loop_clock import LoopClock
from shards.assignment import placement_policies
from shards.assignment.placement_policies import PlacementPolicies
from shards.domain.namespace import NamespaceCreated, NamespacePoliciesSet
from shards.domain.tenant import TenantCreated
from shards.inventory.topic_bounds import OnDemand
from shards.ports import ShardWatching
from shards.wire.event import DomainEvent
from tests.support.scenarios import run_by
from tests.support.shards.harness import VirtualClock
from tests.support.shards.home_shards import FakeHomes
from tests.support.shards.watch_server import FakeLink, WatchServer, eventually
from tests.support.shards.watch_world import SHARD, WatchWorld
from tests.support.simulated.virtual_time import run_virtual

NAMESPACE = "acme/orders"
OTHER = "acme/bills"


def pinned(*brokers: str) -> Policies:
    return Policies(placement=PlacementRules(pinned_brokers=brokers))


class Certain:
    """Whether what was decided is certain; it is, unless a test says otherwise."""

    def __init__(self) -> None:
        self.is_certain = asyncio.Event()
        self.is_certain.set()
        self.asked = 0

    async def wait(self) -> None:
        self.asked += 1
        await self.is_certain.wait()


def say(homes: FakeHomes, name: str, policies: Policies) -> None:
    homes.set_policies(name, pack_policies(policies))


def rules(said: Policies | MetadataError | None) -> PlacementRules:
    assert isinstance(said, Policies), said
    return said.placement


def with_homes(
    scenario: Callable[[FakeHomes, PlacementPolicies], Coroutine[None, None, None]],
    shards: int = 2,
    certain: Certain | None = None,
) -> None:
    async def main() -> None:
        homes = FakeHomes(shards)
        homes.create(KIND_TENANT, "acme")
        homes.create(KIND_NAMESPACE, NAMESPACE)
        homes.create(KIND_NAMESPACE, OTHER)
        subscriber_id = "node-1/topic-controller-1/1"
        policies = PlacementPolicies(
            subscriber_id, homes, homes, VirtualClock(), (certain or Certain()).wait
        )
        try:
            await scenario(homes, policies)
        finally:
            policies.close()

    run_virtual(main)


@run_by(with_homes)
async def test_what_was_read_is_for_who_asked_and_what_is_watched_for_everybody(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
    say(homes, NAMESPACE, pinned("b-1"))

    said = await policies.read([NAMESPACE])

    assert rules(said[NAMESPACE]) == PlacementRules(pinned_brokers=("b-1",))
    assert policies.known(NAMESPACE) is None, "a change behind the read would be missed"
    homes.deliver()
    assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))
    assert homes.reads == ["acme", NAMESPACE]


@run_by(with_homes)
async def test_once_known_a_namespace_is_not_read_again_and_every_change_is_seen(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
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


@run_by(with_homes)
async def test_a_namespace_that_is_deleted_says_nothing_and_its_successor_what_it_says(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
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


@run_by(with_homes)
async def test_a_watch_that_begins_again_is_not_relied_on_before_its_snapshot(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
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


@run_by(with_homes)
async def test_policies_of_a_silent_stream_are_not_used(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
    await policies.read([NAMESPACE])
    homes.deliver()

    await asyncio.sleep(RULES_FRESH_MS / 1000)
    assert policies.known(NAMESPACE) is NO_POLICIES
    await asyncio.sleep(0.001)
    assert policies.known(NAMESPACE) is None
    homes.deliver()
    assert policies.known(NAMESPACE) is NO_POLICIES


@run_by(with_homes)
async def test_behind_a_reconnect_a_watch_is_not_relied_on_before_it_caught_up(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
    await policies.read([NAMESPACE])
    homes.deliver()
    say(homes, NAMESPACE, pinned("b-1"))
    for stream in homes.streams:
        stream.heard_at = asyncio.get_running_loop().time()
        stream.is_behind = True

    assert policies.known(NAMESPACE) is None
    homes.deliver()
    assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))


@run_by(with_homes)
async def test_a_watch_that_is_ended_is_begun_anew_by_the_next_who_needs_it(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
    await policies.read([NAMESPACE, OTHER])
    homes.deliver()
    homes.end_watches(Overloaded("too many watches"))
    say(homes, NAMESPACE, pinned("b-1"))

    assert policies.known(NAMESPACE) is None
    assert policies.namespace_count == 0
    await policies.find([NAMESPACE])
    homes.deliver()
    assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))


@run_by(with_homes)
async def test_a_failed_stream_forgets_policies_until_they_are_read_again(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
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


@run_by(with_homes)
async def test_homes_that_cannot_be_asked_are_the_answer(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
    homes.is_reachable = False

    said = await policies.find([NAMESPACE])

    assert isinstance(said[NAMESPACE], MetadataError)
    homes.is_reachable = True
    assert rules((await policies.find([NAMESPACE]))[NAMESPACE]) == PlacementRules()


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


def withheld(homes: FakeHomes) -> list[str]:
    """Return of which names no change is acknowledged."""
    return sorted(
        name
        for stream in homes.streams
        for watch_id in stream.withheld()
        for name in stream.watches[watch_id].names
    )


def watched(homes: FakeHomes) -> list[str]:
    return sorted(
        name for each in homes.streams for one in each.watches.values() for name in one.names
    )


def test_nothing_is_acknowledged_of_what_is_decided_by_until_that_is_certain() -> None:
    certain = Certain()

    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        async with policies.deciding([NAMESPACE]) as decided_by:
            assert rules(decided_by.of(NAMESPACE)) == PlacementRules()
            certain.is_certain.clear()
            homes.deliver()
            assert withheld(homes) == ["acme", NAMESPACE], "what was read may be older"
        await asyncio.sleep(1.0)
        assert withheld(homes) == ["acme", NAMESPACE], "what was proposed is not certain"
        said = [stream.acknowledged for stream in homes.streams]

        certain.is_certain.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        assert withheld(homes) == []
        for stream, before in zip(homes.streams, said, strict=True):
            assert stream.acknowledged > before

    with_homes(scenario, certain=certain)


def test_however_many_namespaces_are_told_anew_one_question_settles_them() -> None:
    certain = Certain()
    many = [f"acme/n{number}" for number in range(100)]

    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        for name in many:
            homes.create(KIND_NAMESPACE, name)
        await policies.read(many)
        homes.deliver()
        assert withheld(homes) == sorted(["acme", *many])

        await asyncio.sleep(0.1)

        assert withheld(homes) == []
        assert certain.asked == 1

    with_homes(scenario, certain=certain)


@run_by(with_homes)
async def test_however_much_is_decided_without_a_pause_a_change_is_acknowledged(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
    """What began behind a change is decided by it, and delays no word on it."""
    await policies.read([NAMESPACE])
    homes.deliver()
    await asyncio.sleep(0.1)
    earlier, later = policies.deciding([NAMESPACE]), policies.deciding([NAMESPACE])
    await earlier.__aenter__()
    say(homes, NAMESPACE, pinned("b-1"))
    homes.deliver()
    decided_by = await later.__aenter__()
    assert rules(decided_by.of(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))
    assert withheld(homes) == [NAMESPACE]

    await earlier.__aexit__(None, None, None)
    await asyncio.sleep(0.1)

    assert withheld(homes) == []
    await later.__aexit__(None, None, None)


@pytest.mark.parametrize("name", ["acme", NAMESPACE])
def test_a_change_is_acknowledged_once_what_was_decided_before_it_is_certain(name: str) -> None:
    certain = Certain()

    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        await policies.read([NAMESPACE])
        homes.deliver()
        await asyncio.sleep(0.1)
        certain.is_certain.clear()
        homes.set_properties(name, a="b")
        homes.deliver()
        assert withheld(homes) == [], "no rule has changed"
        say(homes, name, pinned("b-1"))
        homes.deliver()

        assert rules(policies.known(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))
        assert withheld(homes) == [name]
        certain.is_certain.set()
        await asyncio.sleep(0.1)
        assert withheld(homes) == []

    with_homes(scenario, certain=certain)


@run_by(with_homes)
async def test_the_rule_for_topics_on_demand_is_kept_like_policies(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
    """By the properties of the namespace where neither its policies nor its tenant's say it."""
    homes.set_properties(NAMESPACE, autoTopicCreationType="partitioned", defaultNumPartitions="5")
    async with policies.deciding([NAMESPACE]) as decided_by:
        was_read = decided_by.on_demand(NAMESPACE)
    assert isinstance(was_read, OnDemand)
    assert was_read.rule == Rule(True, 5)
    assert policies.on_demand(NAMESPACE) is None, "a change behind the read would be missed"

    homes.deliver()
    assert policies.on_demand(NAMESPACE) == was_read
    say(homes, "acme", Policies(auto_creation=AutoCreation(default_partitions=7)))
    homes.deliver()
    assert policies.on_demand(NAMESPACE) == was_read._replace(rule=Rule(True, 7))
    homes.delete(NAMESPACE)
    homes.deliver()
    absent = policies.on_demand(NAMESPACE)
    assert absent is not None
    assert absent.namespace_id == ""
    homes.create(KIND_NAMESPACE, NAMESPACE)
    homes.deliver()
    again = policies.on_demand(NAMESPACE)
    assert again is not None
    assert again.namespace_id not in {"", was_read.namespace_id}


def test_a_property_that_rules_creation_is_acknowledged_once_what_was_decided_is_certain() -> None:
    certain = Certain()

    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        await policies.read([NAMESPACE])
        homes.deliver()
        await asyncio.sleep(0.1)
        certain.is_certain.clear()
        homes.set_properties(NAMESPACE, allowAutoTopicCreation="false")
        homes.deliver()

        assert withheld(homes) == [NAMESPACE]
        certain.is_certain.set()
        await asyncio.sleep(0.1)
        assert withheld(homes) == []

    with_homes(scenario, certain=certain)


@run_by(with_homes)
async def test_what_is_decided_by_is_the_latest_that_is_known(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
    async with policies.deciding([NAMESPACE, OTHER]) as decided_by:
        say(homes, NAMESPACE, pinned("b-1"))
        homes.deliver()
        assert rules(decided_by.of(NAMESPACE)) == PlacementRules(pinned_brokers=("b-1",))
        assert rules(decided_by.of(OTHER)) == PlacementRules()
    assert sorted(homes.reads) == sorted(["acme", NAMESPACE, OTHER])

    async with policies.deciding([NAMESPACE, OTHER]):
        assert len(homes.reads) == 3, "nothing has to be read"


@run_by(with_homes)
async def test_what_was_read_is_decided_by_as_long_as_its_home_waits_and_no_longer(
    homes: FakeHomes, policies: PlacementPolicies
) -> None:
    async with policies.deciding([NAMESPACE]) as decided_by:
        await asyncio.sleep(METADATA_USED_MS / 1000)
        assert rules(decided_by.of(NAMESPACE)) == PlacementRules()
        await asyncio.sleep(0.001)
        assert isinstance(decided_by.of(NAMESPACE), Unavailable)


@pytest.mark.parametrize(
    ("takes_ms", "reads"), [(METADATA_USED_MS, 1), (METADATA_USED_MS + 1, 2), (3_000, 1)]
)
@run_by(with_homes)
async def test_what_comes_too_late_to_decide_by_is_read_again(
    homes: FakeHomes,
    policies: PlacementPolicies,
    *,
    monkeypatch: pytest.MonkeyPatch,
    takes_ms: int,
    reads: int,
) -> None:
    """Once: after three seconds there is no time for another attempt."""
    read = homes.read
    asked: list[int] = []

    async def read_late(*arguments: Any, **named: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            await asyncio.sleep(takes_ms / 1000)
        return await read(*arguments, **named)

    monkeypatch.setattr(homes, "read", read_late)
    async with policies.deciding([NAMESPACE]) as decided_by:
        assert len(asked) == reads
        is_known = isinstance(decided_by.of(NAMESPACE), Policies)
        assert is_known is (takes_ms < 3_000)


@run_by(with_homes)
async def test_homes_that_answer_nothing_are_asked_for_as_long_as_an_election_takes(
    homes: FakeHomes, policies: PlacementPolicies, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = asyncio.get_running_loop().time()

    async def be_silent(*_: Any, timeout_ms: int, **__: Any) -> Any:
        await asyncio.sleep(timeout_ms / 1000)
        raise Unavailable("it has no leader")

    monkeypatch.setattr(homes, "read", be_silent)
    async with policies.deciding([NAMESPACE]) as decided_by:
        said = decided_by.of(NAMESPACE)

    assert isinstance(said, Unavailable)
    assert str(said) == "it has no leader"
    assert asyncio.get_running_loop().time() - began == pytest.approx(RULES_READ_MS / 1000)


def test_a_namespace_is_watched_while_it_is_decided_by_however_many_others_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement_policies, "NAMESPACES_WATCHED_MAX", 1)
    certain = Certain()

    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        async with policies.deciding([NAMESPACE, OTHER]) as decided_by:
            assert policies.namespace_count == 1
            assert watched(homes) == ["acme", OTHER, NAMESPACE]
            assert rules(decided_by.of(NAMESPACE)) == PlacementRules()
        certain.is_certain.clear()
        homes.deliver()
        await policies.read([NAMESPACE])
        say(homes, OTHER, pinned("b-1"))
        homes.deliver()
        assert OTHER in withheld(homes), "it was decided by, and that is not certain"

        certain.is_certain.set()
        await asyncio.sleep(0.1)

        assert withheld(homes) == []
        assert watched(homes) == ["acme", NAMESPACE]

    with_homes(scenario, certain=certain)


def test_a_namespace_that_others_displace_is_watched_until_decisions_by_it_are_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was known, so units were placed by it without holding anything."""
    monkeypatch.setattr(placement_policies, "NAMESPACES_WATCHED_MAX", 1)
    certain = Certain()

    async def scenario(homes: FakeHomes, policies: PlacementPolicies) -> None:
        await policies.read([NAMESPACE])
        homes.deliver()
        assert policies.known(NAMESPACE) is NO_POLICIES
        certain.is_certain.clear()

        await policies.read([OTHER])
        assert policies.known(NAMESPACE) is None
        say(homes, NAMESPACE, pinned("b-1"))
        homes.deliver()
        assert NAMESPACE in withheld(homes)
        certain.is_certain.set()
        await asyncio.sleep(0.1)

        assert withheld(homes) == []
        assert watched(homes) == ["acme", OTHER]

    with_homes(scenario, certain=certain)


class _LinkedHomes:
    """One home shard, over real streams; its inventory is never published."""

    def __init__(self, link: FakeLink) -> None:
        self._link = link

    def home_of(self, kind: Kind, name: str, object_id: str = "") -> int:
        return SHARD

    def manager_shard(self, broker_id: str) -> int:
        return SHARD

    def note_leader(self, shard_id: int, term: int, node_id: str) -> None:
        """There is one leader, which the link knows."""

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
        policies = PlacementPolicies(
            "node-1/topic-controller-1/1", homes, homes, LoopClock(), Certain().wait
        )

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
