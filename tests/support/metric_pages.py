"""Pages of metrics as processes show them, and the tables of docs/metrics.md that describe them.

python -m tests.support.metric_pages      starts a small cluster and writes the tables anew
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import KINDS, ClusterSize
from nextgen.export.writing.progress import ProgressMetrics
from tests.support.processes.local_cluster import running_cluster

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "metrics.md"
SMALL = ClusterSize(cluster_managers=1, shard_nodes=2, discovery=1, brokers=1, shards=2)
LANGUAGE_PREFIXES = ("python_", "process_")
"""Metrics of the library, which every program in this language has."""

_BEGIN = "<!-- tables: python -m tests.support.metric_pages -->"
_END = "<!-- end of tables -->"


@dataclass(frozen=True, slots=True)
class Described:
    """One metric as its table has it. ``name`` is the one that queries use."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str

    @property
    def row(self) -> str:
        labels = ", ".join(f"`{label}`" for label in self.labels)
        return f"| `{self.name}` | {self.kind} | {labels} | {self.text} |"


async def scraped(cluster: LocalCluster) -> dict[str, str]:
    """Return each process' page by node id."""
    pages = {}
    async with aiohttp.ClientSession() as session:
        for node in cluster.plan.nodes:
            async with session.get(f"http://{node.http}/metrics") as response:
                pages[node.node_id] = await response.text()
    return pages


def described(pages: Iterable[str]) -> dict[str, Described]:
    """Return our metrics of some pages by name; labels are those of any sample."""
    found: dict[str, Described] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            if family.name.startswith(LANGUAGE_PREFIXES):
                continue
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            name = f"{family.name}_total" if family.type == "counter" else family.name
            before = found.get(name)
            known = set(before.labels) if before is not None else set()
            text = family.documentation.rstrip(".")
            found[name] = Described(name, family.type, tuple(sorted(labels | known)), text)
    return found


def series_count(page: str) -> int:
    return sum(1 for line in page.splitlines() if line and not line.startswith("#"))


def exporter_page() -> str:
    """Return the page of an exporter that has nothing to tell yet."""
    registry = CollectorRegistry()
    registry.register(ProgressMetrics({}))
    return generate_latest(registry).decode()


def by_kind(cluster: LocalCluster, pages: Mapping[str, str]) -> dict[str, dict[str, Described]]:
    """Return our metrics by kind of process, ``exporter`` among them."""
    kinds = {
        kind: described(pages[node.node_id] for node in cluster.plan.of_kind(kind))
        for kind in KINDS
    }
    return {**kinds, "exporter": described([exporter_page()])}


def tables(kinds: Mapping[str, Mapping[str, Described]]) -> str:
    """Return the document's tables: one for each set of kinds that show the same metrics."""
    owners: dict[str, list[str]] = {}
    for kind, found in kinds.items():
        for name in found:
            owners.setdefault(name, []).append(kind)
    parts: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(owners):
        parts.setdefault(tuple(owners[name]), []).append(name)
    lines = []
    for owned_by in sorted(parts, key=lambda part: (-len(part), part)):
        everywhere = len(owned_by) == len(KINDS)
        title = "every process" if everywhere else ", ".join(owned_by).replace("-", " ")
        lines += [f"## {title.capitalize()}", ""]
        lines += ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        lines += [kinds[owned_by[0]][name].row for name in parts[owned_by]] + [""]
    return "\n".join(lines).strip()


def documented_tables() -> str:
    text = DOCUMENT.read_text(encoding="utf-8")
    return text.split(_BEGIN, 1)[1].split(_END, 1)[0].strip()


def write_tables(text: str) -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    head, rest = document.split(_BEGIN, 1)
    tail = rest.split(_END, 1)[1]
    DOCUMENT.write_text(f"{head}{_BEGIN}\n\n{text.strip()}\n\n{_END}{tail}", encoding="utf-8")


async def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with running_cluster(Path(folder), SMALL) as cluster:
            write_tables(tables(by_kind(cluster, await scraped(cluster))))


if __name__ == "__main__":
    asyncio.run(_main())
