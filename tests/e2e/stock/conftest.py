"""One pair of clusters for all tests of stock brokers, and a namespace for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from tests.support.stock.world import OPERATION_S_MAX, World, running_world


@pytest.fixture(scope="session")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("world")) as running:
        yield running


@pytest.fixture
def world(shared_world: World) -> World:
    """Both clusters; all of it works, whatever the test before did."""
    shared_world.heal()
    return shared_world


@pytest.fixture
def client(world: World) -> Iterator[pulsar.Client]:
    """A stock client that knows the address of discovery and nothing else."""
    with world.system.client(operation_timeout_seconds=OPERATION_S_MAX) as opened:
        yield opened


@pytest.fixture(scope="module")
def handed_over(shared_world: World, request: pytest.FixtureRequest) -> str:
    """A namespace of the file's own, whose topics stock brokers serve one by one."""
    name = f"acme/{request.path.stem.replace('_', '-')}"
    shared_world.hand_over(name)
    return name
