"""Reports of several processes: what adds up, what does not, and how they travel."""

from collections import Counter

import pytest

from discovery.domain.answer_cache import AnswerCache
from discovery.service.counters import DiscoveryCounters
from discovery.service.report import ProcessReporter, Report, as_map, merged, retries_of
from discovery.wire import encoded_answer_facts
from nextgen.client.routing.router import RouterStatistics


def made(names: int = 3, retries: tuple[int, ...] = (5, 1, 0, 0, 0, 0), age_s: float = 0.5):
    counters = DiscoveryCounters()
    counters.names_looked_up = names
    counters.lookups_by_result["assigned"] = 2
    counters.streams_open = 4
    counters.add_cold(50.0, 2)
    cache = AnswerCache(encoded_answer_facts, answers_max=10, aliases_max=1, deltas_max=1)
    routed = RouterStatistics(requests=sum(retries), retries=list(retries))
    return ProcessReporter(
        counters, cache, routed, lambda: {"pulsar_connections": 2}, lambda: [(1, age_s, 3)]
    ).report()


def test_counts_and_gauges_add_up_and_of_ages_the_oldest_counts():
    total = merged([made(names=3, age_s=0.5), made(names=4, age_s=0.75), Report()])

    assert total.counts["names_looked_up"] == 7
    assert total.counts["lookups_assigned"] == 4
    assert total.gauges == {"cached_answers": 0, "streams_open": 8, "pulsar_connections": 4}
    assert total.watch_ages_s == {"1": 0.75}
    assert total.watch_resets == {"1": 6}


def test_quantiles_are_of_all_processes_together():
    many_quick = made(retries=(99, 0, 0, 0, 0, 0))
    some_slow = made(retries=(0, 0, 0, 50, 0, 0))

    total = merged([many_quick, some_slow])

    assert retries_of(total) == [99, 0, 0, 50, 0, 0]
    assert as_map(many_quick)["retries_p99"] == 0
    assert as_map(total)["retries_p99"] == 3
    assert as_map(total)["routed_with_3_retries"] == 50


def test_the_map_has_counts_and_gauges_and_no_buckets():
    numbers = as_map(made())

    assert numbers["names_looked_up"] == 3
    assert numbers["streams_open"] == 4
    assert not [name for name in numbers if name.startswith("cold_")]


def test_a_report_travels_as_one_line():
    report = made(age_s=float("inf"))

    text = report.to_json()

    assert "\n" not in text
    assert Report.from_json(text) == report


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1,2,3,4]", "[{},{},{}]", "nonsense"])
def test_what_is_no_report_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        Report.from_json(text)


def test_an_empty_report_is_the_beginning_of_a_sum():
    assert merged([]) == Report(Counter(), Counter(), {}, Counter())
