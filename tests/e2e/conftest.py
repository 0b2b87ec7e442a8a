"""One cluster for all tests of stock clients that leave it intact; a topic for each test."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pulsar
import pytest

from tests.support.callers.stock_client import PulsarSystem, running_system


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
