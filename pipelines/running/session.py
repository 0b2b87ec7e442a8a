"""Spark sessions: the same settings for every job, on this machine or on any master."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from pipelines.running.java import check_java
from pipelines.running.jvm_noise import without_noise

LOCAL_MASTER = "local[2]"
"""Default master: two cores of this machine."""

HEAP = "2g"
"""Memory of the driver, which does all the work in local mode. It spills to disk beyond that."""

SHUFFLE_PARTITIONS = 8
"""Shuffle partitions in local mode: a few per core, so that a task's share fits a small heap."""

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

    ``master`` is a Spark master: local[N], spark://host:port, ... ``settings`` override the
    defaults. Times are UTC in every session, whatever the machine's zone.

    Raises:
        JobRefused: There is no JVM that can run Spark.
    """
    check_java()
    is_local = master.startswith("local")
    # Spark starts workers with this interpreter, not with the python3 in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = {
        "spark.driver.memory": heap,
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # Without this, each column expression makes three calls to the JVM for its call site.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB_STATE_STORE,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # An unreadable file is an error, never fewer rows.
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
        # This rule drops empty parts of a running query, and the observations on them.
        "spark.sql.adaptive.optimizer.excludedRules": PROPAGATE_EMPTY,
    }
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        chosen |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    builder = SparkSession.builder.master(master).appName(f"nextgen {job}")
    for name, value in (chosen | dict(settings or {})).items():
        builder = builder.config(name, value)
    with without_noise():
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
