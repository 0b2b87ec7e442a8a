"""The directory and the reports over the link to the cluster manager."""

from __future__ import annotations

from typing import cast

from prometheus_client import CollectorRegistry

from nextgen.client.cluster.link import ChangeListener, ClusterLink, ConnectedListener
from nextgen.client.cluster.view import ClusterView
from protos.nextgen.v1.cluster_service_pb2 import (
    BrokerLoad,
    ClusterUpdate,
    LeaderReport,
    LeaseCapacityRequest,
    LeaseCapacityResponse,
    NodeMessage,
)
from protos.nextgen.v1.events_pb2 import BrokerRecorded, LoadReport
from shards.adapters.cluster import LinkCapacity, LinkDirectory, LinkReports
from shards.metrics import NodeMetrics


class FakeLink:
    """A link whose pushes a test makes."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self.sent: list[NodeMessage] = []
        self._changes: list[ChangeListener] = []
        self._connects: list[ConnectedListener] = []

    def on_change(self, listener: ChangeListener) -> None:
        self._changes.append(listener)

    def on_connected(self, listener: ConnectedListener) -> None:
        self._connects.append(listener)

    def send(self, message: NodeMessage) -> bool:
        self.sent.append(message)
        return True

    def push(self, **update: object) -> None:
        pushed = ClusterUpdate(**update)  # type: ignore[arg-type]
        self.view.apply(pushed)
        for listener in self._changes:
            listener(self.view, pushed)

    def learn_leader(self, shard_id: int, term: int, node_id: str, grpc: str = "") -> None:
        if term > self.view.leader_term(shard_id):
            report = LeaderReport(shard_id=shard_id, term=term, node_id=node_id, grpc=grpc)
            self.push(leaders=[report])

    def connect(self) -> None:
        for listener in self._connects:
            listener()


def broker(session_id: str, epoch: int, *, is_live: bool = True) -> BrokerRecorded:
    return BrokerRecorded(broker_id="broker-1", session_id=session_id, epoch=epoch, is_live=is_live)


def test_the_directory_follows_what_is_pushed() -> None:
    link = FakeLink()
    directory = LinkDirectory(cast(ClusterLink, link))

    link.push(brokers=[broker("s-1", 1)])
    assert directory.session("s-1") == broker("s-1", 1)
    assert directory.broker("broker-1") == broker("s-1", 1)
    assert not directory.has_ended("broker-1", "s-1")

    link.push(brokers=[broker("s-2", 2)])
    assert directory.session("s-1") is None
    assert directory.has_ended("broker-1", "s-1")
    assert list(directory.live()) == [broker("s-2", 2)]

    link.push(brokers=[broker("s-2", 2, is_live=False)])
    assert list(directory.live()) == []
    assert directory.broker("broker-1") is None
    assert directory.has_ended("broker-1", "s-2")


def test_a_session_that_was_never_pushed_is_neither_live_nor_over() -> None:
    directory = LinkDirectory(cast(ClusterLink, FakeLink()))

    assert directory.session("s-9") is None
    assert not directory.has_ended("broker-9", "s-9")


def test_listeners_hear_of_brokers_only_and_until_they_unsubscribe() -> None:
    link = FakeLink()
    directory = LinkDirectory(cast(ClusterLink, link))
    heard: list[int] = []
    unsubscribe = directory.on_change(lambda: heard.append(len(directory.live())))

    link.push(heartbeat_sequence=1)
    link.push(brokers=[broker("s-1", 1)])
    unsubscribe()
    unsubscribe()
    link.push(brokers=[broker("s-2", 2)])

    assert heard == [1]


def test_what_the_view_knew_before_is_in_the_directory() -> None:
    link = FakeLink()
    link.push(brokers=[broker("s-1", 1)])

    assert LinkDirectory(cast(ClusterLink, link)).session("s-1") is not None


def test_reports_are_sent_and_asked_for_again_after_a_reconnect() -> None:
    link = FakeLink()
    reports = LinkReports(cast(ClusterLink, link))
    unsubscribe = reports.on_reconnect(lambda: reports.report(broker("s-1", 1)))

    link.connect()
    unsubscribe()
    link.connect()

    assert [message.broker.broker for message in link.sent] == [broker("s-1", 1)]


def test_a_load_that_is_pushed_is_in_the_directory_and_wakes_nobody() -> None:
    link = FakeLink()
    directory = LinkDirectory(cast(ClusterLink, link))
    link.push(brokers=[broker("s-1", 1)])
    heard: list[int] = []
    directory.on_change(lambda: heard.append(1))
    report = LoadReport(topics=3)

    link.push(loads=[BrokerLoad(broker_id="broker-1", session_id="s-1", load=report)])

    assert directory.load("s-1") == report
    assert directory.load("s-2") is None
    assert heard == []


def test_a_load_is_reported_with_its_session() -> None:
    link = FakeLink()
    report = LoadReport(topics=3)

    LinkReports(cast(ClusterLink, link)).report_load("broker-1", "s-1", report)

    carried = BrokerLoad(broker_id="broker-1", session_id="s-1", load=report)
    assert link.sent == [NodeMessage(load=carried)]


class LeasingLink(FakeLink):
    """Grants nothing, and answers."""

    async def lease_capacity(
        self, _request: LeaseCapacityRequest, _timeout_ms: int
    ) -> LeaseCapacityResponse:
        return LeaseCapacityResponse()


async def test_requests_for_more_units_are_counted_apart_from_renewals() -> None:
    metrics = NodeMetrics(CollectorRegistry())
    capacity = LinkCapacity(cast(ClusterLink, LeasingLink()), metrics)

    for units_wanted in (0, 100, 0):
        await capacity.lease_capacity(LeaseCapacityRequest(units_wanted=units_wanted))

    counted = metrics.counters()
    assert (counted["lease_requests"], counted["lease_growths"]) == (3, 1)
