"""One Spark session for all tests of the pipelines: it takes longer to start than most of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.running.session import open_session

HEAP = "1g"

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
"""Starts in two thirds of the time; what runs for minutes would run slower. By default this
compiler has room for less code than Spark has: what is thrown out is compiled again and again."""

IS_COMPILED = "SPARK_COMPILED" in os.environ
"""Set by ``make nightly``: expressions are compiled, and plans checked, as in a job."""

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
    settings = {
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    if not IS_COMPILED:
        settings |= QUICK_PLANS
    with open_session("tests", heap=HEAP, settings=settings) as session:
        yield session
