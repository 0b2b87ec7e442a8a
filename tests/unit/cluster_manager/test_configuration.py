"""Overrides of settings are set by the leader, kept by the view, and pushed to every node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster_manager.adapters.stored_view import StoredView
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.errors import NotLeader, ProposalLost, Refused
from nextgen.kernel.events.levels import EVENT_LEVEL_UNREPORTED
from nextgen.replication.ports import NodeId
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1.events_pb2 import ConfigurationSet, Setting
from tests.unit.cluster_manager.fakes import ManagerUnderTest, hello, settle

FIRST = ConfigurationSet(
    version=1,
    settings=[
        Setting(name="loadBalancerEnabled", value="false"),
        Setting(name="scalableTopicMaxSegments", value="16"),
    ],
)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[ManagerUnderTest]:
    manager = ManagerUnderTest(tmp_path)
    await manager.join_shard_nodes()
    yield manager
    manager.manager.stop()
    await manager.log.stop()


async def set_configuration(
    one: ManagerUnderTest, configuration: ConfigurationSet
) -> ConfigurationSet:
    request = cluster_pb.SetConfigurationRequest(configuration=configuration)
    return (await one.manager.set_configuration(request)).configuration


async def held(one: ManagerUnderTest) -> ConfigurationSet:
    return (await one.manager.configuration()).configuration


async def test_a_configuration_holds_once_it_is_committed(one: ManagerUnderTest) -> None:
    assert await held(one) == ConfigurationSet()

    assert await set_configuration(one, FIRST) == FIRST

    assert await held(one) == FIRST


async def test_the_same_configuration_twice_is_one_event(one: ManagerUnderTest) -> None:
    await set_configuration(one, FIRST)
    position = one.log.status.commit_position

    await set_configuration(one, FIRST)

    assert one.log.status.commit_position == position


async def test_a_refused_configuration_changes_nothing(one: ManagerUnderTest) -> None:
    await set_configuration(one, FIRST)
    absurd = Setting(name="scalableTopicMinSegments", value="17")

    for refused, why in (
        (ConfigurationSet(version=1), "so the next is 2: this is 1"),
        (ConfigurationSet(version=2, settings=[*FIRST.settings, absurd]), "MaxSegments is 16"),
        (ConfigurationSet(version=2, settings=[absurd, absurd]), "names a setting twice"),
    ):
        with pytest.raises(Refused, match=why):
            await set_configuration(one, refused)

    assert await held(one) == FIRST


async def test_a_refusal_waits_until_the_configuration_behind_it_is_committed(
    one: ManagerUnderTest,
) -> None:
    one.log.hold_commits()
    first = asyncio.ensure_future(set_configuration(one, FIRST))
    await settle()
    second = asyncio.ensure_future(set_configuration(one, ConfigurationSet(version=1)))
    await settle()
    assert not second.done()

    one.log.lose_leadership()

    for pending in (first, second):
        with pytest.raises((NotLeader, ProposalLost)):
            await pending


async def test_a_new_leader_reads_the_configuration_from_its_view(one: ManagerUnderTest) -> None:
    await set_configuration(one, FIRST)
    one.log.lose_leadership()
    with pytest.raises(NotLeader):
        await set_configuration(one, FIRST)
    one.log.become_leader()
    await settle()

    assert await held(one) == FIRST
    state, _ = StoredView(one.store).load()
    assert state.configuration.settings == {
        "loadBalancerEnabled": "false",
        "scalableTopicMaxSegments": "16",
    }
    with one.store.pinned_state() as pinned:
        assert one.store.running_digest == pinned.scan()


@pytest.mark.parametrize("kind", ["shard", "broker", "discovery"])
async def test_nodes_get_the_configuration_when_it_changes_and_when_they_join(
    one: ManagerUnderTest, kind: str
) -> None:
    connection = await one.manager.join(hello("c", kind))
    view = ClusterView()
    full = await connection.next_update()
    assert full is not None
    view.apply(full)

    await set_configuration(one, FIRST)
    update = await connection.next_update()
    assert update is not None
    view.apply(update)

    assert view.settings.auto_scale.max_segments == 16
    assert not view.settings.balance.enabled
    full = await (await one.manager.join(hello("d", kind))).next_update()
    assert full is not None
    assert full.configuration == FIRST


async def test_a_configuration_waits_until_every_replica_knows_the_event(
    one: ManagerUnderTest,
) -> None:
    one.log.event_levels[NodeId("cm-3")] = EVENT_LEVEL_UNREPORTED

    with pytest.raises(Refused, match="cm-3 is not known to know configuration_set events"):
        await set_configuration(one, FIRST)

    assert await held(one) == ConfigurationSet()


def test_a_view_keeps_the_later_configuration_and_passes_it_on() -> None:
    view = ClusterView()
    view.apply(cluster_pb.ClusterUpdate(configuration=ConfigurationSet(version=2)))
    view.apply(cluster_pb.ClusterUpdate(full=True, configuration=FIRST))

    assert view.settings.balance.enabled
    assert view.to_update().configuration.version == 2
    assert not ClusterView().to_update().HasField("configuration")
