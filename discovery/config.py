"""The settings of one discovery node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nextgen.kernel.limits.pulsar import DISCOVERY_WORKERS_MAX
from nextgen.runtime.settings import (
    MANAGERS_FLAG,
    NO_TRACES,
    NODE_FLAGS,
    PULSAR_FLAGS,
    TRACE_FLAGS,
    Address,
    Flag,
    Given,
    TraceSettings,
    read_settings,
)

WORKER_VARIABLE = "NEXTGEN_DISCOVERY_WORKER"
"""Set by a discovery process for those it starts itself: ``number:file descriptor``."""

_WORKERS_FLAG = Flag("--workers", "processes that share the Pulsar port", "1")


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """What a process knows that another one started to share its Pulsar port."""

    number: int
    """From 2 on; the process that starts the others is the first."""

    descriptor: int
    """The socket that it reports over."""


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

    pulsar_listen: Address | None
    """The Pulsar protocol; None: gRPC and HTTP only."""

    pulsar_advertise: Address | None
    """Where clients reach ``pulsar_listen``; None with it."""

    workers: int = 1
    """Processes that share the Pulsar port, this one included."""

    worker: WorkerRole | None = None
    """Set in a process that is one of the others."""

    tracing: TraceSettings = NO_TRACES

    cluster_secret_file: Path | None = None
    """What peers prove their membership with (ADR 0057); None: every peer is accepted."""

    cluster_secret_required: bool = True
    """Whether peers without proof are refused; False while a secret is introduced or changed."""


def parse_config(arguments: Sequence[str], environment: Mapping[str, str]) -> DiscoveryConfig:
    """Return the configuration that flags and environment give.

    Raises:
        RefusesToStart: Something is missing or wrong; one sentence per mistake.
        SystemExit: An unknown flag, or ``--help``.
    """
    given = read_settings(
        "python -m discovery",
        "A discovery node: answers lookups, routes writes.",
        (*NODE_FLAGS, *PULSAR_FLAGS, *TRACE_FLAGS, MANAGERS_FLAG, _WORKERS_FLAG),
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
        pulsar_listen=given.optional_address("--pulsar-listen"),
        pulsar_advertise=given.optional_advertised("--pulsar-advertise", "--pulsar-listen"),
        workers=given.number("--workers", least=1, most=DISCOVERY_WORKERS_MAX),
        worker=_worker_role(given, environment.get(WORKER_VARIABLE, "")),
        tracing=given.tracing(environment),
        cluster_secret_file=given.optional_path("--cluster-secret-file"),
        cluster_secret_required=given.truth("--cluster-secret-required"),
    )
    if config.workers > 1 and config.pulsar_listen is None:
        given.mistakes.append("--workers is more than 1 without --pulsar-listen to share")
    given.check()
    return config


def _worker_role(given: Given, text: str) -> WorkerRole | None:
    if not text:
        return None
    number, colon, descriptor = text.partition(":")
    if not (colon and number.isdigit() and descriptor.isdigit()):
        given.mistakes.append(f"{WORKER_VARIABLE} is {text!r}: it is not for people to set")
        return None
    return WorkerRole(int(number), int(descriptor))
