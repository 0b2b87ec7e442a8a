"""The scalable-topics client against a stock broker of the 5.0 milestone, from Maven Central."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from benchmarks.support.stock_broker import NoPeer, StockBroker
from tests.support.callers.foreign_client import require_tools, unavailable
from tests.support.scalable_client.checks import CHECKS, Check
from tests.support.scalable_client.servers import JAVA_MIN, Server, newest_java

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

VERSION = "5.0.0-M1"
HEAP = "600m"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    require_tools("mvn", "java")
    java = newest_java()
    if java is None:
        pytest.skip(f"a stock broker of 5.0 needs Java {JAVA_MIN}")
    broker = StockBroker(tmp_path_factory.mktemp("stock"), version=VERSION, java=java, heap=HEAP)
    with asyncio.Runner() as runner:
        try:
            runner.run(broker.__aenter__())
        except NoPeer as reason:
            unavailable(str(reason))
        try:
            yield Server(f"pulsar://127.0.0.1:{broker.port}", f"http://{broker.http}")
        finally:
            runner.run(broker.__aexit__())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_client_keeps_its_promises_on_a_stock_broker(stock: Server, check: Check) -> None:
    await check(stock, f"stock-{check.__name__}")
