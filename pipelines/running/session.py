"""Spark sessions: the same settings for every job, on this machine or on any master."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from pipelines.running.java import check_java

LOCAL_MASTER = "local[2]"
"""Where jobs run if nobody says otherwise: two cores of this machine."""

HEAP = "2g"
"""Of the driver, which in local mode does all the work. It spills what does not fit."""

SHUFFLE_PARTITIONS = 8
"""Local: a few per core, so that no task's share outgrows a small heap."""

_LOOPBACK = "127.0.0.1"

ROCKSDB_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

PROPAGATE_EMPTY = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


@contextmanager
def open_session(
    job: str,
    *,
    master: str = LOCAL_MASTER,
    heap: str = HEAP,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Return a session named after ``job``; it ends with the block.

    ``master`` is what Spark calls so: local[N], spark://host:port, ... ``settings`` win over ours.
    Times are UTC in every session, whatever the machine thinks.

    Raises:
        JobRefused: There is no JVM that can run Spark.
    """
    check_java()
    is_local = master.startswith("local")
    # Workers are started by these, not by what PATH happens to name python3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = {
        "spark.driver.memory": heap,
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # Otherwise each column that is written down asks the JVM three times who wrote it.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB_STATE_STORE,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A file that a filter cannot read is a refusal, never a few rows less.
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
        # It drops what led to no row while the query runs, and with it what was observed there.
        "spark.sql.adaptive.optimizer.excludedRules": PROPAGATE_EMPTY,
    }
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        chosen |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    builder = SparkSession.builder.master(master).appName(f"nextgen {job}")
    for name, value in (chosen | dict(settings or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
