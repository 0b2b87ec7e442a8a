"""What a successor has to read of facts does not grow with how often they changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from brokers.adapters.ledger.format.files import DISK
from brokers.adapters.ledger.format.measuring import read_facts
from brokers.adapters.ledger.store import DiskLedgerStore
from nextgen.kernel.limits.pulsar import LEDGER_INDEX_BYTES

TOPIC = "0a1b00112233445566778899"
NAME = "persistent://public/default/orders"
FACT_BYTES = 1_000


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost here, and hundreds of rounds take long with them."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(os, "fdatasync", lambda handle: None)


async def test_a_successor_reads_as_little_of_facts_as_of_entries(tmp_path: Path) -> None:
    owner, successor = (DiskLedgerStore(tmp_path, broker_id=name) for name in "ab")
    try:
        ledger = await owner.open(TOPIC, "", 1, topic_name=NAME)
        for number in range(300):
            await ledger.put_state("cursor/a", b"%d" % number + b"x" * FACT_BYTES)

        [facts] = tmp_path.glob("*/*/1-*.state")
        assert read_facts(DISK, str(facts)).length <= LEDGER_INDEX_BYTES + 2 * FACT_BYTES
        found = await successor.open(TOPIC, "", 2, topic_name=NAME)
        assert found.state["cursor/a"] == b"299" + b"x" * FACT_BYTES
    finally:
        await owner.close()
        await successor.close()
