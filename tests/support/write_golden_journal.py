"""Write the golden journal of the present format version into an empty directory.

    python -m tests.support.write_golden_journal tests/replay/logs/journal-v1

A new format version gets a directory of its own; an old one is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.journals import DIRECTORY, append_many, given_disk, open_journal


def main(target: Path) -> None:
    """Every kind of record, two segments, a mark."""
    disk = given_disk()
    journal = open_journal(disk)
    append_many(journal, 3)
    journal.set_hard_state(2, None)
    journal.reset_to(10, 2, 1_000)
    append_many(journal, 32, term=3)
    journal.set_hard_state(5, "node-3")
    journal.truncate_from(40)
    append_many(journal, 3, term=4)
    journal.clear_doubt()
    journal.sync()
    journal.close()
    target.mkdir(parents=True)
    for name in disk.list_names(DIRECTORY):
        (target / name).write_bytes(disk.read(DIRECTORY / name))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
