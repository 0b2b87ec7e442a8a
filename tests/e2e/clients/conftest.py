"""A cluster for stock clients: brokers to spare, as their checks kill some, and several shards and
discovery nodes, over which a namespace is spread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.callers.stock_client import ClusterSize, PulsarSystem, running_system

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=2, brokers=3, shards=3)


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    with running_system(tmp_path_factory.mktemp("cluster"), SIZE) as running:
        yield running
