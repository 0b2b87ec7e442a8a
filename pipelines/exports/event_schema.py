"""The Spark schema of exported events, for every version of the export.

A reader always gets the columns of ``SCHEMA_VERSION``; a newer export is refused before it is read.
Columns are only added, so there is one schema for all versions (``nextgen/export/README.md``). A
column that an older file does not have is null, which means the same as the field's default.
No version so far needs more of an upcast than that: tests/spark/test_golden_exports.py.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as t

from nextgen.export.format.schema import SCHEMA_VERSION, event_schema

__all__ = ["ENVELOPE_COLUMNS", "SCHEMA_VERSION", "spark_schema"]

ENVELOPE_COLUMNS = (
    "position",
    "term",
    "shard_id",
    "time",
    "causation_id",
    "schema_version",
    "event_type",
    "raw",
)

_SCALARS: dict[pa.DataType, t.DataType] = {
    pa.bool_(): t.BooleanType(),
    pa.int32(): t.IntegerType(),
    pa.int64(): t.LongType(),
    pa.float32(): t.FloatType(),
    pa.float64(): t.DoubleType(),
    pa.string(): t.StringType(),
    pa.binary(): t.BinaryType(),
}


def spark_schema() -> t.StructType:
    """Return the columns of exported events, in the order of the export."""
    return t.StructType(
        [
            # Spark reads every column of a Parquet file as nullable.
            t.StructField(field.name, _type_of(field.type), nullable=True)
            for field in event_schema()
        ]
    )


def _type_of(arrow: pa.DataType) -> t.DataType:
    if pa.types.is_struct(arrow):
        return t.StructType([t.StructField(one.name, _type_of(one.type)) for one in arrow])
    if pa.types.is_map(arrow):
        return t.MapType(_type_of(arrow.key_type), _type_of(arrow.item_type))
    if pa.types.is_list(arrow):
        return t.ArrayType(_type_of(arrow.value_type))
    if pa.types.is_timestamp(arrow):
        return t.TimestampType()
    return _SCALARS[arrow]
