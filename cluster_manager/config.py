"""The settings of one replica of the cluster manager."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_manager.domain.shard_map import REPLICATION_FACTOR_MAX
from nextgen.kernel.limits.cluster import CLUSTER_NODES_MAX, SHARDS_MAX
from nextgen.runtime.settings import (
    NO_TRACES,
    NODE_FLAGS,
    RAFT_FLAGS,
    TRACE_FLAGS,
    Address,
    Flag,
    Given,
    TraceSettings,
    read_settings,
)
from nextgen.runtime.tls_settings import NO_TLS, TlsSettings

REPLICAS_MAX = 7
"""Replicas of the cluster manager at most: each one fsyncs every event."""

_PEER_FORM = "node_id=raft_host:raft_port=grpc_host:grpc_port"

_FLAGS = (
    *NODE_FLAGS,
    *RAFT_FLAGS,
    *TRACE_FLAGS,
    Flag("--peers", f"all replicas, this one included: {_PEER_FORM},..."),
    Flag("--initial-shard-nodes", "shard nodes to wait for before the first shard map", "3"),
    Flag("--shards", "shards of the first shard map", "4"),
    Flag("--replication-factor", "replicas of each shard in the first shard map", "3"),
)


@dataclass(frozen=True, slots=True)
class Peer:
    """One replica of the cluster manager."""

    node_id: str
    raft: Address
    grpc: Address


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """The whole configuration of this process."""

    node_id: str
    cluster_id: str
    listen: Address
    advertise: Address
    raft_listen: Address
    raft_advertise: Address
    http_listen: Address
    data_directory: Path
    peers: tuple[Peer, ...]
    initial_shard_nodes: int = 3
    """Number of shard nodes that must have joined before the first map is made over them."""
    shards: int = 4
    replication_factor: int = 3
    tracing: TraceSettings = NO_TRACES

    cluster_secret_file: Path | None = None
    """The secret by which peers prove their membership (ADR 0057); None: every peer is accepted."""

    cluster_secret_required: bool = True
    """Whether peers without proof are refused; False while a secret is introduced or changed."""

    tls: TlsSettings = NO_TLS
    """Certificates, by which nodes know each other (ADR 0144) and clients know this process."""


def parse_config(arguments: Sequence[str], environment: Mapping[str, str]) -> ManagerConfig:
    """Return the configuration that flags and environment give.

    Raises:
        RefusesToStart: Something is missing or wrong; one sentence per mistake.
        SystemExit: An unknown flag, or ``--help``.
    """
    given = read_settings(
        "python -m cluster_manager",
        "A replica of the cluster manager.",
        _FLAGS,
        arguments,
        environment,
    )
    config = ManagerConfig(
        node_id=given.identifier("--node-id"),
        cluster_id=given.identifier("--cluster-id"),
        listen=given.address("--listen"),
        advertise=given.advertised("--advertise", "--listen"),
        raft_listen=given.address("--raft-listen"),
        raft_advertise=given.advertised("--raft-advertise", "--raft-listen"),
        http_listen=given.address("--http-listen"),
        data_directory=given.path("--data-dir"),
        peers=tuple(_peers(given)),
        initial_shard_nodes=given.number("--initial-shard-nodes", least=1, most=CLUSTER_NODES_MAX),
        shards=given.number("--shards", least=1, most=SHARDS_MAX),
        replication_factor=given.number(
            "--replication-factor", least=1, most=REPLICATION_FACTOR_MAX
        ),
        tracing=given.tracing(environment),
        cluster_secret_file=given.optional_path("--cluster-secret-file"),
        cluster_secret_required=given.truth("--cluster-secret-required"),
        tls=given.tls("--raft-listen"),
    )
    given.mistakes += _mistakes(config)
    given.check()
    return config


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Return the replicas that ``--peers`` names.

    Raises:
        RefusesToStart: The text does not have the flag's form.
    """
    given = read_settings("--peers", "", (Flag("--peers", ""),), ["--peers", text], {})
    peers = tuple(_peers(given))
    given.check()
    return peers


def _peers(given: Given) -> Iterator[Peer]:
    for part in filter(None, (piece.strip() for piece in given.text("--peers").split(","))):
        fields = part.split("=")
        if len(fields) != 3:
            given.mistakes.append(f"--peers has {part!r}, which is not of the form {_PEER_FORM}")
            continue
        node_id, raft, grpc = fields
        yield Peer(
            node_id, given.parse_address("--peers", raft), given.parse_address("--peers", grpc)
        )


def _mistakes(config: ManagerConfig) -> list[str]:
    mistakes = []
    node_ids = [peer.node_id for peer in config.peers]
    if not 1 <= len(node_ids) <= REPLICAS_MAX:
        mistakes.append(f"--peers has {len(node_ids)} replicas, allowed are 1 to {REPLICAS_MAX}")
    if len(set(node_ids)) != len(node_ids):
        mistakes.append("--peers has a node id twice")
    if config.node_id not in node_ids:
        mistakes.append(f"--peers does not have this node, {config.node_id}")
    if config.replication_factor > config.initial_shard_nodes:
        mistakes.append(
            f"--replication-factor {config.replication_factor} needs as many "
            f"--initial-shard-nodes, which is {config.initial_shard_nodes}"
        )
    return mistakes
