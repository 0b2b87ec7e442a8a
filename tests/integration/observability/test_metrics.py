"""What a real cluster shows to Prometheus: documented, parseable, and bounded in number."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from nextgen.client.model import NewTopic
from nextgen.kernel.limits.trace import METRIC_SERIES_PER_PROCESS_MAX, METRIC_SERIES_PER_SHARD_MAX
from tests.support.callers.cluster_questions import NAMESPACE, client_of, prepare_namespace
from tests.support.metric_pages import (
    SMALL,
    Described,
    by_kind,
    documented_tables,
    exporter_page,
    scraped,
    series_count,
    tables,
)
from tests.support.observability.promtool import (
    ALERTS,
    dashboard_expressions,
    metrics_named_in,
    promtool,
)
from tests.support.processes.local_cluster import running_cluster

TOPICS = 1_000
LABELS = {"shard", "outcome", "kind"}
OUTCOME = re.compile(
    r'nextgen_discovery_lookups_total\{outcome="(no_broker|no_capacity|unavailable|not_leader|'
    r'overloaded|deadline_exceeded|connection_lost|proposal_lost|session_expired)"\}'
)
"""Trouble that passes."""


@dataclass(frozen=True, slots=True)
class Pages:
    """What the same processes showed before and after many topics."""

    before: dict[str, str]
    after: dict[str, str]
    kinds: dict[str, dict[str, Described]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pages(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pages]:
    directory = tmp_path_factory.mktemp("metrics")
    async with (
        running_cluster(directory, SMALL) as cluster,
        client_of(cluster, timeout_ms=60_000) as client,
    ):
        await prepare_namespace(client)
        names = [f"persistent://{NAMESPACE}/topic-{number}" for number in range(TOPICS)]
        # One of each outcome first, for a label's value counts once it was used.
        await client.create_topics([NewTopic(names[0])])
        await client.lookup([names[0], f"persistent://{NAMESPACE}/none"])
        await client.lookup([names[0]])
        before = await scraped(cluster)
        await client.create_topics([NewTopic(name) for name in names[1:]])
        located = await client.lookup(names)
        assert all(one.broker_id for one in located)
        after = await scraped(cluster)
        yield Pages(before, after, by_kind(cluster, after))


def test_every_metric_is_documented_and_every_documented_one_is_there(pages: Pages) -> None:
    assert tables(pages.kinds) == documented_tables(), (
        "docs/metrics.md differs from what processes show: python -m tests.support.metric_pages"
    )


def test_a_thousand_topics_make_no_series(pages: Pages) -> None:
    """But one for each new outcome: a lookup that came while a process stood still has its own."""
    for node_id, page in pages.after.items():
        before, after = names_of_series(pages.before[node_id]), names_of_series(page)
        assert before <= after, node_id
        assert {name for name in after - before if not OUTCOME.fullmatch(name)} == set(), node_id


def test_series_of_a_process_are_bounded_by_its_shards(pages: Pages) -> None:
    for node_id, page in pages.after.items():
        bound = METRIC_SERIES_PER_PROCESS_MAX
        if node_id.startswith("shard-node"):
            bound += SMALL.shards * METRIC_SERIES_PER_SHARD_MAX
        assert series_count(page) <= bound, node_id


def test_labels_name_nothing_that_users_make(pages: Pages) -> None:
    for found in pages.kinds.values():
        for one in found.values():
            if one.name != "nextgen_build_info":
                assert set(one.labels) <= LABELS, one.name
    for page in pages.after.values():
        assert NAMESPACE not in page
        assert "broker-1" not in page


def test_units_are_base_units_and_counters_are_named_as_such(pages: Pages) -> None:
    for found in pages.kinds.values():
        for one in found.values():
            assert one.name.endswith("_total") == (one.kind == "counter"), one.name
            assert not re.search(r"_(ms|millis|us|minutes|kib|mib|percent)(_|$)", one.name)


def test_prometheus_finds_nothing_to_complain_about(pages: Pages, tmp_path: Path) -> None:
    for page in (*pages.after.values(), exporter_page()):
        own = "".join(f"{line}\n" for line in page.splitlines() if not is_of_the_language(line))
        promtool("check", "metrics", cwd=tmp_path, given=own)


def test_alerts_and_dashboards_ask_for_what_is_there(pages: Pages) -> None:
    queries = [ALERTS.read_text(encoding="utf-8"), *(query for _, query in dashboard_expressions())]
    shown = {name for found in pages.kinds.values() for name in found}
    language = set(re.findall(r"^# TYPE (\S+)", pages.after["discovery-1"], re.MULTILINE))
    assert metrics_named_in(queries) <= shown | language


def names_of_series(page: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in page.splitlines() if line and line[0] != "#"}


def is_of_the_language(line: str) -> bool:
    return line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(("python_", "process_"))
