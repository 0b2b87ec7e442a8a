"""The settings of one broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nextgen.kernel.limits import BROKER_CAPACITY_UNITS_MAX
from nextgen.runtime.settings import MANAGERS_FLAG, NODE_FLAGS, Address, Flag, read_settings

_FLAGS = (
    *NODE_FLAGS,
    MANAGERS_FLAG,
    Flag("--capacity-units", "topics and partitions to serve at most", "50000"),
    Flag("--zone", "failure domain, free text", ""),
    Flag("--data-dir", "directory that remembers this broker's identity; default: none", ""),
)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Everything that this process is told."""

    node_id: str
    """Also the broker id: whose capacity and session it is."""

    cluster_id: str
    """A broker manager of another cluster refuses us."""

    listen: Address
    """BrokerService over gRPC."""

    advertise: Address
    """Where others reach ``listen``."""

    http_listen: Address
    """Metrics and probes."""

    cluster_managers: tuple[Address, ...]
    """The cluster manager's replicas, in any order."""

    capacity_units: int
    """Topics and partitions this broker is willing to serve."""

    zone: str
    """Failure domain, free text; empty: none."""

    data_dir: Path | None
    """Remembers whose directory it is and keeps a second process out. A broker stores nothing."""


def parse_config(arguments: Sequence[str], environment: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration that flags and environment give.

    Raises:
        RefusesToStart: Something is missing or wrong; one sentence per mistake.
        SystemExit: An unknown flag, or ``--help``.
    """
    given = read_settings(
        "python -m brokers", "A broker: serves assigned topics.", _FLAGS, arguments, environment
    )
    config = BrokerConfig(
        node_id=given.identifier("--node-id"),
        cluster_id=given.identifier("--cluster-id"),
        listen=given.address("--listen"),
        advertise=given.advertised("--advertise", "--listen"),
        http_listen=given.address("--http-listen"),
        cluster_managers=given.addresses("--cluster-managers"),
        capacity_units=given.number("--capacity-units", least=1, most=BROKER_CAPACITY_UNITS_MAX),
        zone=given.text("--zone"),
        data_dir=given.path("--data-dir") if given.text("--data-dir") else None,
    )
    given.check()
    return config
