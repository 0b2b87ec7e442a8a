"""After the load: records the logs, the listings, and digests of every view in the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from nextgen.cli.calls.cluster_status import gather_status
from nextgen.cli.shards.verify import VerifyReport, verify_shards
from nextgen.client import Client
from nextgen.client.log.reader import ShardLogReader
from nextgen.harness.history.log_events import log_event_of
from nextgen.harness.history.model import FinalItem, FinalListing, ViewHash
from nextgen.harness.history.record_file import Recorder

READ_TIMEOUT_MS = 30_000


@dataclass(slots=True)
class Gathered:
    """Numbers of records that were gathered from the cluster."""

    events: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    objects: int = 0


async def committed_positions(targets: Sequence[str]) -> dict[int, int]:
    """Return the last committed position of each shard, by its replicas' reports."""
    status = await gather_status(targets)
    return {shard["shard_id"]: int(shard["commit_position"]) for shard in status["shards"]}


async def gather_log(
    targets: Sequence[str],
    since: Mapping[int, int],
    positions: Mapping[int, int],
    history_dir: Path,
) -> Gathered:
    """Record every event of every shard behind ``since`` up to ``positions``.

    Raises:
        MetadataError: A log cannot be read from there on, or no replica answers.
    """
    gathered = Gathered()
    with Recorder(history_dir / "log.jsonl") as recorder:
        for shard, last in sorted(positions.items()):
            reader = ShardLogReader(targets, shard)
            async with aclosing(reader.pages(since.get(shard, 0) + 1)) as pages:
                async for page in pages:
                    recorder.write_all(map(log_event_of, page.events))
                    gathered.events += len(page.events)
                    gathered.positions[shard] = page.next_position - 1
                    if page.next_position > last:
                        break
    return gathered


async def gather_final(
    targets: Sequence[str], tenant: str, history_dir: Path, gathered: Gathered
) -> None:
    """Record the listing of everything below the tenant."""
    with Recorder(history_dir / "final.jsonl") as recorder:
        async with Client(targets, timeout_ms=READ_TIMEOUT_MS) as client:
            items: list[FinalItem] = []
            found = await client.get_tenant(tenant)
            if found is not None:
                items.append(FinalItem(tenant, found.tenant_id, found.version, found.properties))
            async for space in client.list_namespaces(tenant):
                items.append(
                    FinalItem(space.name, space.namespace_id, space.version, space.properties)
                )
            for name in [item.key for item in items if "/" in item.key]:
                async for topic in client.list_topics(name):
                    items.append(
                        FinalItem(topic.name, topic.topic_id, topic.version, topic.properties)
                    )
        recorder.write_all(items)
        for prefix in (f"{tenant}/", f"persistent://{tenant}/"):
            recorder.write(FinalListing(prefix))
    gathered.objects = len(items)


async def gather_views(targets: Sequence[str], history_dir: Path) -> VerifyReport:
    """Make every replica rebuild and compare its view; record the digests."""
    report = await verify_shards(targets)
    with Recorder(history_dir / "views.jsonl") as recorder:
        for result in report.results:
            if result.answer is not None:
                recorder.write(
                    ViewHash(
                        result.shard_id,
                        result.node_id,
                        result.answer.position,
                        f"{result.answer.scanned_digest:016x}",
                    )
                )
    return report
