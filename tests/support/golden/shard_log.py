"""Writes the golden log of a shard: run once per change of the storage format, never to repair.

    .venv/bin/python -m tests.support.golden.shard_log shard-v1

A golden log is kept for ever: what it says was once written by a release, and every later
program must read the same from it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nextgen.replication.ports import Record
from nextgen.replication.protocol.entry_codec import encode_records
from tests.support.shards.events import HISTORY, entries_of, record_of
from tests.support.shards.world import MemoryView

LOGS = Path(__file__).parents[2] / "replay" / "logs"


def golden_records() -> list[Record]:
    """Return the history as records: some with several events, outcomes, a rejection."""
    records = [record_of(HISTORY[:5], b"command-00000001", b"first")]
    records += [record_of([event]) for event in HISTORY[5:20]]
    records.append(record_of([], b"command-00000002", b"rejected"))
    records.append(record_of(HISTORY[20:], b"command-00000003", b"last"))
    return records


def dump_text(view: MemoryView) -> str:
    """Return every row of the view as text, bytes in hex."""
    tables = {
        name: [[each.hex() if isinstance(each, bytes) else each for each in row] for row in rows]
        for name, rows in view.dump().items()
    }
    return json.dumps(tables, indent=1, ensure_ascii=False) + "\n"


def main(name: str) -> None:
    folder = LOGS / name
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is there already; a golden log is never written again")
    folder.mkdir(parents=True, exist_ok=True)
    records = golden_records()
    (folder / "entries.msgpack").write_bytes(encode_records(records))
    view = MemoryView()
    view.apply(entries_of([records]))
    (folder / "view.json").write_text(dump_text(view))
    view.close()


if __name__ == "__main__":
    main(sys.argv[1])
