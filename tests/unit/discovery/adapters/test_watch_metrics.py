"""The numbers of programs' watches on the metrics page: of each kind, and of nothing more."""

from prometheus_client import CollectorRegistry

from discovery.adapters.metrics import DiscoveryCollector
from discovery.service.report import Report
from discovery.service.watches.registry import WATCH_KINDS, WatchRegistry
from nextgen.kernel.errors import Overloaded
from protos.nextgen.v1.discovery_service_pb2 import WatchRequest
from tests.support.discovery.fake_cluster import StaticLink, full_update
from tests.support.discovery.fake_shard_changes import FakeReader, FakeStreams


async def test_watches_are_counted_by_kind_open_and_ended():
    link = StaticLink(full_update({1: "a:1"}))
    watches = WatchRegistry(link, FakeStreams(), FakeReader(), lambda: 0.0)
    slow = watches.open_shard_map(WatchRequest())
    watches.open_shard_map(WatchRequest())
    slow.fail(Overloaded("it reads nothing"))

    def report() -> Report:
        made = Report()
        made.counts.update(watches.counts())
        made.gauges.update(watches.gauges())
        return made

    registry = CollectorRegistry()
    registry.register(DiscoveryCollector(report))

    def value(name: str, kind: str) -> float | None:
        return registry.get_sample_value(f"nextgen_discovery_{name}", {"kind": kind})

    assert {kind: value("watches", kind) for kind in WATCH_KINDS} == {
        "tenants": 0,
        "namespaces": 0,
        "topics": 0,
        "assignments": 0,
        "map": 2,
        "topic_lists": 0,
    }
    assert value("watches_ended_as_slow_total", "map") == 1
    assert value("watch_events_relayed_total", "topics") == 0
    await watches.close(slow)
    assert value("watches", "map") == 1
    assert value("watches_ended_as_slow_total", "map") == 1, "it was counted once"
    assert registry.get_sample_value("nextgen_discovery_watch_lag_positions") == 0
    await watches.stop()
