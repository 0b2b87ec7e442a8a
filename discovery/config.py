"""The settings of one discovery node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nextgen.runtime.settings import MANAGERS_FLAG, NODE_FLAGS, Address, read_settings


@dataclass(frozen=True, slots=True)
class DiscoveryConfig:
    """Everything that this process is told."""

    node_id: str
    """Unique in the cluster; also the name it subscribes to assignments by."""

    cluster_id: str
    """A cluster manager of another cluster refuses us."""

    listen: Address
    """DiscoveryService over gRPC: the public port."""

    advertise: Address
    """Where others reach ``listen``."""

    http_listen: Address
    """Metrics and probes."""

    cluster_managers: tuple[Address, ...]
    """The cluster manager's replicas, in any order."""


def parse_config(arguments: Sequence[str], environment: Mapping[str, str]) -> DiscoveryConfig:
    """Return the configuration that flags and environment give.

    Raises:
        RefusesToStart: Something is missing or wrong; one sentence per mistake.
        SystemExit: An unknown flag, or ``--help``.
    """
    given = read_settings(
        "python -m discovery",
        "A discovery node: answers lookups, routes writes.",
        (*NODE_FLAGS, MANAGERS_FLAG),
        arguments,
        environment,
    )
    config = DiscoveryConfig(
        node_id=given.identifier("--node-id"),
        cluster_id=given.identifier("--cluster-id"),
        listen=given.address("--listen"),
        advertise=given.advertised("--advertise", "--listen"),
        http_listen=given.address("--http-listen"),
        cluster_managers=given.addresses("--cluster-managers"),
    )
    given.check()
    return config
