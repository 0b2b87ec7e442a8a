"""Every way in which exports are broken on purpose; as a program, it writes each by itself.

    python -m tests.support.spark.breakages DIR

writes DIR/clean and a folder for each breakage, called by its rule and number, to be audited.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.spark.broken.file_breakages import FILE_BREAKAGES
from tests.support.spark.broken.layout_breakages import LAYOUT_BREAKAGES
from tests.support.spark.broken.log_breakages import INVENTORY_BREAKAGES, history_with_map
from tests.support.spark.broken.owner_breakages import OWNER_BREAKAGES
from tests.support.spark.broken.rename_breakages import RENAME_BREAKAGES

LOG_BREAKAGES = (
    *INVENTORY_BREAKAGES,
    *RENAME_BREAKAGES,
    *OWNER_BREAKAGES,
    *LAYOUT_BREAKAGES,
)

SPOILT_SHARD = 1


async def write_all(folder: Path) -> None:
    """Write an export that is right, and one for each breakage."""
    await history_with_map().export(folder / "clean")
    for number, breakage in enumerate((*LOG_BREAKAGES, *FILE_BREAKAGES), start=1):
        print(f"{breakage.rule}-{number}: {breakage.name}")
    for number, of_log in enumerate(LOG_BREAKAGES, start=1):
        history = history_with_map()
        of_log.spoil(history)
        await history.export(folder / f"{of_log.rule}-{number}")
    for number, of_file in enumerate(FILE_BREAKAGES, start=len(LOG_BREAKAGES) + 1):
        export = folder / f"{of_file.rule}-{number}"
        await history_with_map().export(export)
        of_file.spoil(export, SPOILT_SHARD)


if __name__ == "__main__":
    asyncio.run(write_all(Path(sys.argv[1])))
