"""Write the golden journal of a format version, 1 or 2, into an empty directory.

    python -m tests.support.golden.journal 2 tests/replay/logs/journal-v2

A new format version gets a directory of its own; an old one is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nextgen.replication.journal.journal import Journal
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.protocol.membership import encode_configuration
from tests.support.simulated.journals import DIRECTORY, append_many, given_disk, open_journal

NODES = tuple(NodeId(f"node-{number}") for number in range(1, 5))


def fill_version_1(journal: Journal) -> None:
    """Every kind of record that it has, two segments."""
    append_many(journal, 3)
    journal.set_hard_state(2, None)
    journal.reset_to(10, 2, 1_000)
    append_many(journal, 32, term=3)
    journal.set_hard_state(5, "node-3")
    journal.truncate_from(40)
    append_many(journal, 3, term=4)
    journal.set_unverified(0)


def fill_version_2(journal: Journal) -> None:
    """Configurations of each origin: a snapshot's, an entry's, one cut off, one learned."""
    append_many(journal, 3)
    journal.reset_to(10, 2, 1_000, Configuration(NODES[:3], (), 8))
    append_many(journal, 20, term=3)
    journal.append(3, encode_configuration(Configuration(NODES[:3], NODES[3:], 31)), 0)
    append_many(journal, 25, term=3)
    journal.append(3, encode_configuration(Configuration(NODES, (), 57)), 0)
    journal.truncate_from(57)
    append_many(journal, 2, term=4)
    journal.learn_configuration(Configuration(NODES[:2], NODES[2:], 50), index=56)
    journal.set_hard_state(5, "node-3")


def main(version: int, target: Path) -> None:
    disk = given_disk()
    journal = open_journal(disk)
    {1: fill_version_1, 2: fill_version_2}[version](journal)
    journal.sync()
    journal.close()
    target.mkdir(parents=True)
    for name in disk.list_names(DIRECTORY):
        (target / name).write_bytes(disk.read(DIRECTORY / name))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
