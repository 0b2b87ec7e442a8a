"""Tables that grow by batches. Each batch is applied exactly once, even if the process is killed.

    TABLE/current.json                      the folders of the table, and the last batch
    TABLE/batch=00000000000000000012/...    the Parquet files of that batch

A batch writes its folder, then replaces ``current.json`` atomically. A batch that runs again,
because Spark did not note its end, finds itself in ``current.json`` or writes its folder anew.
Readers use the folders in ``current.json``. A folder is removed one batch after its last mention.
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
    """The content of ``current.json``. ``parts`` are folders relative to the table, by part."""

    batch: int = NO_BATCH
    parts: Mapping[str, str] = field(default_factory=dict)


class BatchedTable:
    """One writer, any number of readers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def published(self) -> Published:
        """Return the folders that readers use.

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
        """Return the folder for a batch, emptied of an earlier attempt's files."""
        folder = self.folder / f"batch={batch:020d}"
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def publish(self, batch: int, parts: Mapping[str, str]) -> None:
        """Make ``parts`` the table; remove folders that neither this nor the last batch names."""
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
