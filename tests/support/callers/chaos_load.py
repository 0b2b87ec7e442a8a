"""Load for the chaos tests: creates and deletes that remember what was acknowledged.

An operation whose answer never came is *unknown*: its topic may or may not be there at the end,
and nothing is concluded from it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

from nextgen.client import Client
from nextgen.kernel.errors import MetadataError

PAUSE_AFTER_TROUBLE_S = 0.05


@dataclass(slots=True)
class Ledger:
    """What the load knows. ``attempted`` holds every name that was ever sent."""

    attempted: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)  # Create acknowledged, no delete sent.
    absent: set[str] = field(default_factory=set)  # Delete acknowledged.
    unknown: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    error_at: list[float] = field(default_factory=list)
    operations: int = 0
    done_at: list[float] = field(default_factory=list)

    @property
    def gap_s_max(self) -> float:
        """The longest time in which no operation succeeded."""
        times = sorted(self.done_at)
        return max((b - a for a, b in pairwise(times)), default=0.0)

    def note_error(self, error: MetadataError) -> None:
        self.errors.append(f"{type(error).__name__}: {error}")
        self.error_at.append(asyncio.get_running_loop().time())

    def note_success(self) -> None:
        self.operations += 1
        self.done_at.append(asyncio.get_running_loop().time())


async def write_until(
    stop: asyncio.Event, client: Client, ledger: Ledger, *, namespace: str, writer: int
) -> None:
    """Create topics in small batches and delete every fifth batch, until ``stop``."""
    number = 0
    while not stop.is_set():
        number += 1
        names = [f"persistent://{namespace}/w{writer}-{number}-{i}" for i in range(4)]
        created = await _create(client, ledger, names)
        if created and number % 5 == 0:
            await _delete(client, ledger, names[0])
        if not created:
            await asyncio.sleep(PAUSE_AFTER_TROUBLE_S)


async def _create(client: Client, ledger: Ledger, names: list[str]) -> bool:
    ledger.attempted.update(names)
    try:
        outcomes = await client.create_topics(names)
    except MetadataError as error:
        ledger.note_error(error)
        # A definite failure of a batch that spans shards may still have created a part of it.
        ledger.unknown.update(names)
        return False
    for outcome in outcomes:
        assert outcome.is_created, f"{outcome.name}: {outcome.rejection_code} {outcome.message}"
        ledger.present.add(outcome.name)
    ledger.note_success()
    return True


async def _delete(client: Client, ledger: Ledger, name: str) -> None:
    ledger.present.discard(name)
    try:
        await client.delete_topic(name)
    except MetadataError as error:
        ledger.note_error(error)
        ledger.unknown.add(name)
        return
    ledger.absent.add(name)
    ledger.note_success()


async def assert_ledger_holds(client: Client, ledger: Ledger, *, namespace: str) -> None:
    """Compare what was acknowledged with what is listed: nothing lost, nothing made up."""
    listed = {topic.name async for topic in client.list_topics(namespace)}

    lost = ledger.present - listed
    assert not lost, f"{len(lost)} acknowledged topics are lost, for example {sorted(lost)[:3]}"
    undead = ledger.absent & listed
    assert not undead, f"{len(undead)} deleted topics are there, for example {sorted(undead)[:3]}"
    phantoms = listed - ledger.attempted
    assert not phantoms, f"{len(phantoms)} topics nobody created, e.g. {sorted(phantoms)[:3]}"
    unexplained = listed - ledger.present - ledger.unknown
    assert not unexplained, f"not explained: {sorted(unexplained)[:3]}"
