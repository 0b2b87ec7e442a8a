"""One cluster for all tests of stock clients that leave it intact; a topic for each test.

With ``--dist loadscope`` one process runs the tests of a file, in their order, and one runs all
that share the clusters of stock brokers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

import pulsar
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.callers.stock_client import PulsarSystem, running_system

STOCK = "tests/e2e/stock"
WITHOUT_CLUSTERS = "test_plugin.py"


class FilesTogether(LoadScopeScheduling):
    """Not by the marks of groups: pytest 9.2 does not send them to pytest-xdist."""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePath(nodeid.partition("::")[0])
        is_shared = path.is_relative_to(STOCK) and path.name != WITHOUT_CLUSTERS
        return STOCK if is_shared else str(path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether | None:
    return FilesTogether(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def client(system: PulsarSystem) -> Iterator[pulsar.Client]:
    with system.client() as opened:
        yield opened


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; nothing has been created."""
    name = re.sub(r"\W+", "-", request.node.name)
    return f"persistent://public/default/{name}"
