"""A sidecar begins no session while another broker has one under its node id."""

from __future__ import annotations

import pytest

from brokers.adapters.cluster.uncontested_locator import UncontestedLocator
from brokers.ports.plugin import PluginFault
from brokers.ports.session import ManagerLocation
from brokers.service.sidecar.plugin_faults import PluginFaults
from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.limits.stream import NODE_ID_LOST_MS
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import BrokerEndpoints, BrokerRecorded

OURS, THEIRS = "pulsar://b1:6650", "pulsar://b2:6650"
MANAGER = ManagerLocation("manager:1", 4)


class World:
    def __init__(self) -> None:
        self.view = ClusterView()
        self.now_ms = 0
        self.session_id = ""
        self.faults = PluginFaults(lambda: 0)
        self.locator = UncontestedLocator(
            self, self, "stock-1", clock=lambda: self.now_ms, faults=self.faults
        )
        self.locator.session_id = lambda: self.session_id
        self.locator.urls = OURS

    def location(self) -> ManagerLocation:
        return MANAGER

    async def wait_change(self, timeout_ms: int) -> None: ...

    def record(self, session_id: str, urls: str, *, epoch: int, is_live: bool = True) -> None:
        record = BrokerRecorded(
            broker_id="stock-1",
            session_id=session_id,
            epoch=epoch,
            is_live=is_live,
            endpoints=BrokerEndpoints(pulsar_url=urls),
        )
        self.view.apply(ClusterUpdate(brokers=[record]))


@pytest.fixture
def world() -> World:
    return World()


def test_a_broker_that_nobody_contests_finds_its_manager(world: World) -> None:
    assert world.locator.location() == MANAGER
    world.record("s-1", OURS, epoch=1)
    assert world.locator.location() == MANAGER
    assert not world.faults.counts


def test_the_session_of_another_broker_is_waited_for(world: World) -> None:
    world.record("s-1", THEIRS, epoch=1)
    assert world.locator.location() is None
    assert world.faults.counts == {PluginFault.NODE_ID_TAKEN: 1}

    world.record("s-1", THEIRS, epoch=1, is_live=False)
    assert world.locator.location() == MANAGER


def test_who_lost_its_session_rests_until_it_knows_to_whom(world: World) -> None:
    world.session_id = "s-1"
    assert world.locator.location() == MANAGER
    world.session_id = ""

    assert world.locator.location() is None
    world.now_ms += NODE_ID_LOST_MS - 1
    assert world.locator.location() is None
    world.record("s-2", THEIRS, epoch=2)
    world.now_ms += 1
    assert world.locator.location() is None
    assert world.faults.counts == {PluginFault.NODE_ID_TAKEN: 1}


def test_who_lost_its_session_to_nobody_begins_another_one(world: World) -> None:
    world.session_id = "s-1"
    world.locator.location()
    world.session_id = ""
    world.locator.location()
    world.now_ms += NODE_ID_LOST_MS

    assert world.locator.location() == MANAGER


def test_its_own_session_at_another_address_contests_nothing(world: World) -> None:
    """The broker was started again at another port."""
    world.session_id = "s-1"
    world.locator.location()
    world.record("s-1", OURS, epoch=1)
    world.locator.urls = "pulsar://b1:7750"

    assert world.locator.location() == MANAGER


def test_a_process_that_commands_no_broker_is_not_kept_from_its_manager(world: World) -> None:
    world.locator.urls = ""
    world.record("s-1", THEIRS, epoch=1)

    assert world.locator.location() == MANAGER
