"""The settings of one shard node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nextgen.kernel.limits.cluster import JOURNAL_SEGMENT_BYTES, STORED_INTEGER_MAX
from nextgen.kernel.limits.scalable import SCALABLE_CONSUMER_GRACE_MS
from nextgen.kernel.limits.snapshot import SNAPSHOT_JOURNAL_BYTES
from nextgen.kernel.limits.write import (
    WRITES_IN_FLIGHT_MAX,
    WRITES_WAITING_MAX,
    WRITES_WAITING_PER_TENANT_MAX,
)
from nextgen.runtime.settings import (
    MANAGERS_FLAG,
    NO_TRACES,
    NODE_FLAGS,
    RAFT_FLAGS,
    TENANT_WRITES_FLAG,
    TRACE_FLAGS,
    Address,
    Flag,
    TraceSettings,
    read_settings,
)
from nextgen.runtime.tls_settings import NO_TLS, TlsSettings

_SNAPSHOT_FLAG = Flag(
    "--snapshot-journal-bytes",
    "journal of one shard that is written before it is cut again",
    str(SNAPSHOT_JOURNAL_BYTES),
)

_WRITES_FLAG = Flag(
    "--writes-in-flight-max",
    "cost, in topics, of a shard's writes that are decided and not committed",
    str(WRITES_IN_FLIGHT_MAX),
)

_ZONE_FLAG = Flag("--zone", "failure domain, free text", "")

_CONSUMER_GRACE_FLAG = Flag(
    "--scalable-consumer-grace-ms",
    "time for which a consumer of a scalable topic keeps its segments without a connection",
    str(SCALABLE_CONSUMER_GRACE_MS),
)


@dataclass(frozen=True, slots=True)
class ShardNodeConfig:
    """All settings of this process."""

    node_id: str
    cluster_id: str
    listen: Address
    advertise: Address
    raft_listen: Address
    raft_advertise: Address
    http_listen: Address
    cluster_managers: tuple[Address, ...]
    data_directory: Path
    snapshot_journal_bytes: int = SNAPSHOT_JOURNAL_BYTES
    """Journal of one shard that is written before it is cut again."""
    writes_in_flight_max: int = WRITES_IN_FLIGHT_MAX
    """Cost of a shard's writes that are decided and not committed; beyond it they wait in turn."""
    tenant_writes_waiting_max: int = WRITES_WAITING_PER_TENANT_MAX
    """Writes of one tenant that wait at a shard; beyond it they are refused."""
    scalable_consumer_grace_ms: int = SCALABLE_CONSUMER_GRACE_MS
    """How long a registered consumer of a scalable topic may be without a connection."""
    zone: str = ""
    """Failure domain, free text; empty: none. Replicas of a shard are spread over the zones."""
    tracing: TraceSettings = NO_TRACES

    cluster_secret_file: Path | None = None
    """The secret with which peers prove their membership (ADR 0057); None: all are accepted."""

    cluster_secret_required: bool = True
    """Whether peers without proof are refused; False while a secret is introduced or changed."""

    tls: TlsSettings = NO_TLS
    """Certificates, by which nodes know each other (ADR 0144) and clients know this process."""


def parse_config(arguments: Sequence[str], environment: Mapping[str, str]) -> ShardNodeConfig:
    """Return the configuration that flags and environment give.

    Raises:
        RefusesToStart: A setting is missing or invalid; one sentence per mistake.
        SystemExit: An unknown flag, or ``--help``.
    """
    given = read_settings(
        "python -m shards",
        "A shard node: replicas of several shards.",
        (
            *(*NODE_FLAGS, *RAFT_FLAGS, *TRACE_FLAGS),
            *(MANAGERS_FLAG, _SNAPSHOT_FLAG, _WRITES_FLAG, TENANT_WRITES_FLAG),
            *(_CONSUMER_GRACE_FLAG, _ZONE_FLAG),
        ),
        arguments,
        environment,
    )
    config = ShardNodeConfig(
        node_id=given.identifier("--node-id"),
        cluster_id=given.identifier("--cluster-id"),
        listen=given.address("--listen"),
        advertise=given.advertised("--advertise", "--listen"),
        raft_listen=given.address("--raft-listen"),
        raft_advertise=given.advertised("--raft-advertise", "--raft-listen"),
        http_listen=given.address("--http-listen"),
        cluster_managers=given.addresses("--cluster-managers"),
        data_directory=given.path("--data-dir"),
        snapshot_journal_bytes=given.number(
            _SNAPSHOT_FLAG.name, least=JOURNAL_SEGMENT_BYTES, most=STORED_INTEGER_MAX
        ),
        writes_in_flight_max=given.number(_WRITES_FLAG.name, least=1, most=WRITES_WAITING_MAX),
        tenant_writes_waiting_max=given.number(
            TENANT_WRITES_FLAG.name, least=1, most=WRITES_WAITING_MAX
        ),
        scalable_consumer_grace_ms=given.number(
            _CONSUMER_GRACE_FLAG.name, least=1, most=STORED_INTEGER_MAX
        ),
        zone=given.text(_ZONE_FLAG.name),
        tracing=given.tracing(environment),
        cluster_secret_file=given.optional_path("--cluster-secret-file"),
        cluster_secret_required=given.truth("--cluster-secret-required"),
        tls=given.tls("--raft-listen"),
    )
    given.check()
    return config
