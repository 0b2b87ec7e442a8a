"""Tables that grow by batches, each batch in them exactly once, whatever the moment of a kill.

    TABLE/current.json                      which folders are the table, and which batch made it
    TABLE/batch=00000000000000000012/...    what that batch wrote: Parquet

A batch writes its folder, then replaces ``current.json`` at once. A batch that is run again,
because Spark did not note its end, finds itself in ``current.json`` or writes its folder anew.
Readers use what ``current.json`` names. Folders that it has not named for one batch are removed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from nextgen.kernel.input.json_fields import parse_json
from pipelines.errors import JobRefused

CURRENT = "current.json"
NO_BATCH = -1

_BATCH_FOLDER = re.compile(r"batch=\d{20}")


@dataclass(frozen=True, slots=True)
class Published:
    """What ``current.json`` says. ``parts`` are folders relative to the table, by part."""

    batch: int = NO_BATCH
    parts: Mapping[str, str] = field(default_factory=dict)


class BatchedTable:
    """One writer, any number of readers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def published(self) -> Published:
        """Return what readers are to read.

        Raises:
            JobRefused: It is damaged.
        """
        path = self.folder / CURRENT
        try:
            fields: dict[str, Any] = parse_json(path.read_bytes())
            return Published(int(fields["batch"]), dict(fields["parts"]))
        except FileNotFoundError:
            return Published()
        except (ValueError, KeyError, TypeError) as error:
            raise JobRefused(f"{path} is damaged ({error}): remove the folder of tables") from error

    def folder_of(self, batch: int) -> Path:
        """Return where a batch writes, empty: what an earlier attempt left is gone."""
        folder = self.folder / f"batch={batch:020d}"
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def publish(self, batch: int, parts: Mapping[str, str]) -> None:
        """Make ``parts`` the table, and remove what two publications no longer name."""
        before = self.published()
        assert batch > before.batch, f"batch {batch} is published behind {before.batch}"
        content = json.dumps({"batch": batch, "parts": dict(parts)}, indent=1) + "\n"
        draft = self.folder / f".{CURRENT}.draft"
        with draft.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / CURRENT)
        self._remove_unnamed({*before.parts.values(), *parts.values()}, up_to=batch)

    def read(
        self, spark: SparkSession, schema: str, parts: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Return the table, or some of its parts, with the columns of ``schema`` (DDL)."""
        chosen = self.published().parts if parts is None else parts
        if not chosen:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(
            *(str(self.folder / path) for path in chosen.values())
        )

    def _remove_unnamed(self, named: set[str], up_to: int) -> None:
        for folder in self.folder.iterdir():
            if not _BATCH_FOLDER.fullmatch(folder.name) or folder.name > f"batch={up_to:020d}":
                continue
            kept = [path for path in named if path == folder.name or path.startswith(folder.name)]
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)
