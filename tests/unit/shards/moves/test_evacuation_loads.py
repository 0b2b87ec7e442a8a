"""The last load of a session outlives it, for as long as it has units here."""

from __future__ import annotations

from nextgen.kernel.limits.placement import LOAD_REPORT_MS_MAX
from protos.nextgen.v1.events_pb2 import BrokerRecorded, LoadReport, TopicLoad
from shards.moves.evacuation_loads import RATES_PER_SESSION_MAX, EvacuationLoads
from tests.support.shards.harness import Cluster


def cluster_of(*brokers: str) -> Cluster:
    cluster = Cluster(units=10)
    for broker_id in brokers:
        cluster.report(
            BrokerRecorded(broker_id=broker_id, session_id=f"s-{broker_id}", epoch=1, is_live=True)
        )
    return cluster


def load(at_ms: int, **rates: float) -> LoadReport:
    busiest = [TopicLoad(name=name, bytes_in_per_second=rate) for name, rate in rates.items()]
    return LoadReport(topics=7, measured_at_ms=at_ms, busiest=busiest)


def test_what_a_session_carried_is_known_after_its_end_while_it_is_wanted() -> None:
    cluster = cluster_of("a")
    loads = EvacuationLoads(cluster)
    cluster.loads["s-a"] = load(1, x=5.0, y=9.0)
    loads.look({"s-a"})

    del cluster.loads["s-a"]
    cluster.report(BrokerRecorded(broker_id="a", session_id="s-a", epoch=1, is_live=False))
    loads.look({"s-a"})
    assert loads.busiest("s-a") == ["y", "x"]
    assert loads.units_reported("s-a") == 7

    loads.look(set())
    assert (loads.busiest("s-a"), loads.units_reported("s-a")) == ([], 0)


def test_rates_are_smoothed_report_by_report_and_one_report_counts_once() -> None:
    cluster = cluster_of("a")
    loads = EvacuationLoads(cluster)
    cluster.loads["s-a"] = load(1, x=8_000.0)
    loads.look(set())
    cluster.loads["s-a"] = load(1 + LOAD_REPORT_MS_MAX, x=7_200.0)

    for _ in range(3):
        loads.look(set())

    assert loads.rates("s-a") == {"x": 8_000 - 800 // 8}


def test_traffic_that_no_named_unit_has_is_spread_evenly_over_the_others() -> None:
    cluster = cluster_of("a")
    loads = EvacuationLoads(cluster)
    report = load(1, x=8_000.0)
    report.bytes_in_per_second = 20_000.0
    cluster.loads["s-a"] = report
    loads.look(set())

    assert loads.unnamed_rate("s-a") == 12_000 // 6
    assert loads.unnamed_rate("unknown") == 0


def test_a_unit_that_is_named_no_more_fades() -> None:
    cluster = cluster_of("a")
    loads = EvacuationLoads(cluster)
    cluster.loads["s-a"] = load(1, gone=8_000.0, new=0.0)
    loads.look(set())

    for minute in range(1, 300):
        cluster.loads["s-a"] = load(1 + minute * LOAD_REPORT_MS_MAX, new=800.0)
        loads.look(set())

    assert loads.rates("s-a") == {"new": 800}


def test_so_many_fading_rates_are_kept_and_no_more() -> None:
    cluster = cluster_of("a")
    loads = EvacuationLoads(cluster)
    names = [f"t-{number}" for number in range(RATES_PER_SESSION_MAX + 1)]
    for at_ms, start in enumerate(range(0, len(names), 50), start=1):
        some = {name: 1e9 + 1e6 * names.index(name) for name in names[start : start + 50]}
        cluster.loads["s-a"] = load(at_ms, **some)
        loads.look(set())

        assert len(loads.rates("s-a")) == min(start + 50, RATES_PER_SESSION_MAX)


def test_a_session_that_said_nothing_is_not_known() -> None:
    loads = EvacuationLoads(cluster_of("a"))
    loads.look({"s-a"})

    assert loads.rates("s-a") == {}
    assert loads.units_reported("s-a") == 0
