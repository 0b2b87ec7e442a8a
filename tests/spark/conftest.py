"""One Spark session for all tests of the pipelines: it takes longer to start than most of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.traceback_utils import SCCallSiteSync

from pipelines.running.session import open_session

HEAP = "1g"

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
"""Starts in two thirds of the time; what runs for minutes would run slower. By default this
compiler has room for less code than Spark has: what is thrown out is compiled again and again."""

ROOMY_JVM = f"-Xms{HEAP} -Xmn400m -XX:MetaspaceSize=256m"
"""All the memory from the beginning. By default there is little of it for young objects, and a full
collection before each step by which the heap, or the space for 25,000 classes, grows."""

IS_COMPILED = "SPARK_COMPILED" in os.environ
"""Set by ``make nightly``: expressions are compiled, and plans checked, as in a job."""

UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""The JVM does not verify Spark's classes again in each session. Nor those that Spark generates,
so this is only for sessions that generate none."""

CALL_SITE = ("callSite.short", "callSite.long")
"""Local properties that name the caller in Spark's page. Where one is missing, Spark takes the
stack of the thread for each RDD of a plan: for hundreds of them, each from some hundred frames."""

QUICK_PLANS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.lightweightPlanChangeValidation": "false",
}
"""To compile an expression takes longer than to interpret it for a few hundred rows. Spark checks
the plan behind each of its own rules, which is a part of what planning takes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    options = [QUICK_JVM, ROOMY_JVM, *([] if IS_COMPILED else [UNVERIFIED])]
    settings = {
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    if not IS_COMPILED:
        settings |= QUICK_PLANS
    with open_session("tests", heap=HEAP, settings=settings) as session:
        _name_call_site(session)
        yield session


def _name_call_site(session: SparkSession) -> None:
    for name in CALL_SITE:
        session.sparkContext.setLocalProperty(name, "tests")
    # PySpark sets the first of them for an outermost action, and removes it behind that.
    SCCallSiteSync._spark_stack_depth = 1
