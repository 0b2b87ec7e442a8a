"""Cuts load files into the blocks of requests: ascending names, within the bounds of a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet

from nextgen.bulk.errors import LoadRefused
from nextgen.bulk.manifest import LoadFile
from nextgen.kernel.limits.bulk import BULK_NAMES_BYTES_MAX, BULK_NAMES_MAX

NAME_COLUMN = "name"
NAMESPACE_COLUMN = "namespace"


def read_column(folder: Path, files: Sequence[LoadFile], column: str) -> Iterator[list[str]]:
    """Yield the values of a text column of ``files``, in order, some thousands at a time.

    Raises:
        LoadRefused: A file is no Parquet file, lacks the column or has another number of rows.
    """
    for file in files:
        path, rows = folder / file.path, 0
        try:
            with pyarrow.parquet.ParquetFile(path) as opened:
                for batch in opened.iter_batches(BULK_NAMES_MAX, columns=[column]):
                    rows += batch.num_rows
                    yield batch.column(0).to_pylist()
        except (pyarrow.ArrowException, OSError, ValueError, IndexError) as error:
            raise LoadRefused(f"{path} cannot be read: {error}") from error
        if rows != file.rows:
            raise LoadRefused(f"{path} holds {rows} rows, the manifest says {file.rows}")


def blocks_of(folder: Path, files: Sequence[LoadFile], *, skip: int = 0) -> Iterator[list[str]]:
    """Yield the names of ``files`` behind the first ``skip``, in blocks of one request each.

    Raises:
        LoadRefused: As ``read_column``.
    """
    block: list[str] = []
    size_bytes = 0
    for names in read_column(folder, files, NAME_COLUMN):
        if skip >= len(names):
            skip -= len(names)
            continue
        for name in names[skip:]:
            name_bytes = len(name.encode())
            if len(block) == BULK_NAMES_MAX or size_bytes + name_bytes > BULK_NAMES_BYTES_MAX:
                yield block
                block, size_bytes = [], 0
            block.append(name)
            size_bytes += name_bytes
        skip = 0
    if block:
        yield block
