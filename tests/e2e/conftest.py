"""One cluster for all tests of stock clients that leave it intact; a topic for each test.

With ``--dist loadgroup`` the tests of a file are run by one process, in their order, and so are
all that share the clusters of stock brokers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support.callers.stock_client import PulsarSystem, running_system

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            is_shared = "shared_world" in getattr(item, "fixturenames", ())
            group = "stock brokers" if is_shared else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))


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
