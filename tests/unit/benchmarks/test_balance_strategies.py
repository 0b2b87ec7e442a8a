"""The comparison of strategies: its page, and a short run of it."""

from __future__ import annotations

import random

import pytest

from benchmarks.support.balance.avg_shedder import AvgShedder
from benchmarks.support.balance.bundles import GRACE_SECONDS, Bundles, ShortTerm
from benchmarks.support.balance.by_topic import ByTopic
from benchmarks.support.balance.cluster import (
    BROKER_BYTES_PER_SECOND,
    STEP_SECONDS,
    SimulatedCluster,
    Strategy,
)
from benchmarks.support.balance.comparison import GOAL, STRATEGIES, Outcome, compare, shown
from benchmarks.support.balance.page import PAGE, PLOT, last_results, table, with_table
from benchmarks.support.balance.transfer_shedder import TransferShedder
from benchmarks.support.balance.workloads import SHORT, WORKLOADS

FULL = BROKER_BYTES_PER_SECOND


@pytest.fixture(scope="module")
def short() -> list[Outcome]:
    return compare([1], SHORT)


def of(outcomes: list[Outcome], workload: str) -> list[Outcome]:
    """Return the outcomes of a workload: by topic, AvgShedder, TransferShedder, none."""
    return [each for each in outcomes if each.workload == workload]


def test_the_page_has_the_table_of_the_last_results() -> None:
    results = last_results()
    page = PAGE.read_text()

    assert page == with_table(page, table(results["outcomes"])), (
        "python -m benchmarks.cluster.balance_strategies --write"
    )
    assert [each["workload"] for each in results["outcomes"]] == [
        each.name for each in WORKLOADS for _ in STRATEGIES
    ]
    assert f"]({PLOT.name})" in page


def test_a_short_run_gives_what_it_gave_when_the_page_was_written(short: list[Outcome]) -> None:
    assert [shown(each) for each in short] == last_results()["short"], (
        "the balance or the simulation changed: "
        "python -m benchmarks.cluster.balance_strategies --write"
    )


def test_by_topic_a_new_broker_is_filled_sooner_and_with_fewer_moves(short: list[Outcome]) -> None:
    ours, avg, transfer, none = of(short, "a new broker, short")

    assert ours.imbalance <= GOAL
    assert ours.imbalance < min(avg.imbalance, transfer.imbalance, none.imbalance)
    assert ours.topic_moves <= min(avg.topic_moves, transfer.topic_moves)
    assert ours.minutes_to_goal is not None
    assert avg.minutes_to_goal is not None
    assert ours.minutes_to_goal < avg.minutes_to_goal


def test_by_topic_skewed_traffic_is_evened_out_better(short: list[Outcome]) -> None:
    ours, avg, transfer, none = of(short, "skewed, short")

    assert ours.imbalance <= GOAL
    assert ours.imbalance < min(avg.imbalance, transfer.imbalance, none.imbalance)
    assert ours.topic_moves <= avg.topic_moves, "the better of the other two"


# The rules of the others ------------------------------------------------------------------------


def cluster_of(*loads: float, bundles: int = 20) -> SimulatedCluster:
    """Return brokers with these usages, each of ``bundles`` bundles of one topic."""
    places = [broker for broker in range(len(loads)) for _ in range(bundles)]
    rates = [loads[place] * FULL / bundles for place in places]
    return SimulatedCluster(
        [1.0] * len(loads), [True] * len(loads), list(range(len(places))), rates, places
    )


def started(strategy: AvgShedder | TransferShedder, cluster: SimulatedCluster) -> None:
    """Start with the bundles where the topics are."""
    places = list(cluster.places)
    strategy.start(cluster)
    strategy._bundles.places = dict(enumerate(places))
    cluster.places = places


def minutes_until_moves(strategy: Strategy, cluster: SimulatedCluster, minutes: int) -> int | None:
    for step in range(1, minutes * 60 // STEP_SECONDS + 1):
        cluster.begin_step(cluster.rates)
        strategy.step(cluster, step * STEP_SECONDS)
        if cluster.bundle_moves:
            return step * STEP_SECONDS // 60
    return None


@pytest.mark.parametrize(("high", "minute"), [(0.64, None), (0.66, 8), (0.89, 8), (0.91, 2)])
def test_avg_shedder_acts_at_the_eighth_low_or_the_second_high_hit(
    high: float, minute: int | None
) -> None:
    strategy, cluster = AvgShedder(1), cluster_of(high, 0.5, bundles=40)
    started(strategy, cluster)

    assert minutes_until_moves(strategy, cluster, 20) == minute


def test_avg_shedder_moves_a_fifth_of_the_difference_to_the_lower_of_the_pair() -> None:
    strategy, cluster = AvgShedder(1), cluster_of(0.9, 0.4, bundles=100)
    started(strategy, cluster)
    minutes_until_moves(strategy, cluster, 3)

    assert cluster.bundle_moves == 11, "0.1 of use at 0.009 a bundle"
    assert cluster.places.count(1) == 111


def test_avg_shedder_pairs_the_highest_with_the_lowest_and_the_second_with_the_second() -> None:
    strategy, cluster = AvgShedder(1), cluster_of(0.95, 0.9, 0.45, 0.4)
    started(strategy, cluster)
    minutes_until_moves(strategy, cluster, 3)

    assert [place for place in cluster.places[:20] if place] == [3, 3]
    assert [place for place in cluster.places[20:40] if place != 1] == [2, 2]


@pytest.mark.parametrize(("high", "minute"), [(0.74, None), (0.78, 4)])
def test_transfer_shedder_acts_when_the_deviation_is_too_high_in_more_than_three_rounds(
    high: float, minute: int | None
) -> None:
    strategy, cluster = TransferShedder(1), cluster_of(high, 0.25)
    started(strategy, cluster)

    assert minutes_until_moves(strategy, cluster, 20) == minute


def test_transfer_shedder_moves_at_most_half_the_difference_of_the_top_ten_bundles() -> None:
    strategy, cluster = TransferShedder(1), cluster_of(0.9, 0.0, bundles=15)
    started(strategy, cluster)
    minutes_until_moves(strategy, cluster, 10)

    assert cluster.bundle_moves == 7, "0.45 of use at 0.06 a bundle"


def test_transfer_shedder_swaps_a_bundle_that_is_too_large() -> None:
    strategy, cluster = TransferShedder(1), cluster_of(0.9, 0.3, bundles=2)
    started(strategy, cluster)
    minutes_until_moves(strategy, cluster, 10)

    assert cluster.places == [1, 0, 0, 1], "0.45 went, 0.15 came"


def test_transfer_shedder_fills_a_broker_without_load() -> None:
    strategy, cluster = TransferShedder(1), cluster_of(0.3, 0.3, 0.0)
    started(strategy, cluster)

    assert minutes_until_moves(strategy, cluster, 10) == 4
    assert cluster.places.count(2) > 20


def test_transfer_shedder_waits_three_minutes_behind_a_move() -> None:
    strategy, cluster = TransferShedder(1), cluster_of(0.95, 0.1, 0.1, bundles=40)
    started(strategy, cluster)
    first = minutes_until_moves(strategy, cluster, 10)
    assert first is not None
    moves = cluster.bundle_moves

    for step in range(first * 2 + 1, (first + 3) * 2):
        cluster.begin_step(cluster.rates)
        strategy.step(cluster, step * STEP_SECONDS)

    assert cluster.bundle_moves == moves


def test_a_bundle_that_moved_stays_for_half_an_hour_and_takes_its_topics_along() -> None:
    bundles = Bundles(random.Random(1))
    cluster = SimulatedCluster([1.0, 1.0], [True, True], [0, 0, 0, 1], [1.0] * 4)
    bundles.start(cluster)
    place = cluster.places[0]

    bundles.move(cluster, 0, 1 - place, now_seconds=100)

    assert cluster.places[:3] == [1 - place] * 3
    assert (cluster.topic_moves, cluster.bundle_moves) == (3, 1)
    assert not bundles.is_free(0, 100 + GRACE_SECONDS - 1)
    assert bundles.is_free(0, 100 + GRACE_SECONDS)


def test_the_short_term_average_is_of_ten_minutes() -> None:
    term = ShortTerm()
    for rate in (10.0, 20.0, 30.0):
        term.add({7: rate})
    assert term.averages[7] == pytest.approx(20.0)

    for _ in range(20):
        term.add({7: 100.0})
    before = term.averages[7]
    term.add({7: 0.0})
    assert term.averages[7] == pytest.approx(0.9 * before)


def test_topics_are_balanced_by_what_the_shards_run() -> None:
    strategy, cluster = ByTopic(1), cluster_of(0.9, 0.3)

    strategy.start(cluster)
    cluster.places = [0] * 20 + [1] * 20
    for step in range(1, 9):
        cluster.begin_step(cluster.rates)
        strategy.step(cluster, step * STEP_SECONDS)

    assert cluster.imbalance() <= 1.1
    assert cluster.topic_moves == 6, "to a twentieth of the mean"
