"""The settings of one discovery node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from discovery.domain.fairness import DEFAULT_FAIRNESS, Fairness
from nextgen.kernel.limits.cluster import GRPC_CONNECTION_STREAMS_MAX, LOOKUP_NAMES_WAITING_MAX
from nextgen.kernel.limits.discovery import DISCOVERY_SHORT_READ_BYTES
from nextgen.kernel.limits.pulsar import (
    DISCOVERY_CONNECTION_COMMANDS_WAITING_MAX,
    DISCOVERY_WORKERS_MAX,
    PULSAR_FRAME_BYTES_MAX,
)
from nextgen.kernel.limits.write import WRITES_WAITING_MAX
from nextgen.pulsar.topic_lists.settings import (
    DEFAULT_TOPIC_LISTS,
    TOPIC_LIST_FLAGS,
    TopicListSettings,
    topic_list_settings,
)
from nextgen.runtime.security.authentication.settings import (
    AUTHENTICATION_FLAGS,
    NO_AUTHENTICATION,
    AuthenticationSettings,
    authentication_settings,
)
from nextgen.runtime.security.authorization.settings import (
    AUTHORIZATION_FLAGS,
    NO_AUTHORIZATION,
    AuthorizationSettings,
    authorization_settings,
)
from nextgen.runtime.settings import (
    MANAGERS_FLAG,
    NO_TRACES,
    NODE_FLAGS,
    PULSAR_FLAGS,
    TENANT_WRITES_FLAG,
    TRACE_FLAGS,
    Address,
    Flag,
    Given,
    TraceSettings,
    read_settings,
)
from nextgen.runtime.tls_settings import NO_TLS, TlsSettings

WORKER_VARIABLE = "NEXTGEN_DISCOVERY_WORKER"
"""Environment variable that a discovery process sets for its workers: ``number:file
descriptor``."""

_CLIENT_LISTEN_FLAG = Flag(
    "--client-listen",
    "host:port of gRPC for clients without a certificate; default: there is none",
    "",
)

_WORKERS_FLAG = Flag("--workers", "processes that share the Pulsar port", "1")

_TURN_US_MAX = 1_000_000
"""The longest turn that can be set: one second."""

_FAIRNESS: Mapping[str, tuple[str, int, int]] = MappingProxyType(
    {
        "tenant_lookups_waiting_max": (
            "names of one tenant that wait for shards before more are refused",
            1,
            LOOKUP_NAMES_WAITING_MAX,
        ),
        "tenant_writes_waiting_max": (TENANT_WRITES_FLAG.description, 1, WRITES_WAITING_MAX),
        "writes_sent_max": (
            "cost, in topics, of creates sent to a shard and not answered",
            1,
            WRITES_WAITING_MAX,
        ),
        "connection_calls_max": (
            "calls in flight on one gRPC connection",
            1,
            GRPC_CONNECTION_STREAMS_MAX,
        ),
        "turn_us": ("time of the event loop for long reads in one turn", 100, _TURN_US_MAX),
        "turn_bytes_max": (
            "bytes of one Pulsar connection answered in one turn",
            DISCOVERY_SHORT_READ_BYTES,
            PULSAR_FRAME_BYTES_MAX,
        ),
        "turn_commands_max": (
            "commands of one Pulsar connection begun in one turn",
            1,
            DISCOVERY_CONNECTION_COMMANDS_WAITING_MAX,
        ),
    }
)
"""For each field of ``Fairness``: its description, minimum and maximum."""


def fairness_flags(fairness: Fairness) -> dict[str, str]:
    """Return the flags that give another process the same ``fairness``."""
    return {_flag_of(field): str(getattr(fairness, field)) for field in _FAIRNESS}


def _flag_of(field: str) -> str:
    return f"--{field.replace('_', '-')}"


_FAIRNESS_FLAGS = tuple(
    Flag(_flag_of(field), description, str(getattr(DEFAULT_FAIRNESS, field)))
    for field, (description, _, _) in _FAIRNESS.items()
)


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """The role of a worker: a process that shares the Pulsar port of the one that started it."""

    number: int
    """The worker's number, from 2 on; the process that starts the workers is the first."""

    descriptor: int
    """The socket that it reports over."""


@dataclass(frozen=True, slots=True)
class DiscoveryConfig:
    """The whole configuration of this process."""

    node_id: str
    """Unique in the cluster; also the name it subscribes to assignments by."""

    cluster_id: str
    """A cluster manager of another cluster refuses us."""

    listen: Address
    """Address of DiscoveryService over gRPC, the public port."""

    advertise: Address
    """Where others reach ``listen``."""

    http_listen: Address
    """Metrics and probes."""

    cluster_managers: tuple[Address, ...]
    """The cluster manager's replicas, in any order."""

    pulsar_listen: Address | None
    """Address of the Pulsar port; None: gRPC and HTTP only."""

    pulsar_advertise: Address | None
    """Address under which clients reach ``pulsar_listen``; None if that is None."""

    workers: int = 1
    """Processes that share the Pulsar port, this one included."""

    worker: WorkerRole | None = None
    """Set in a worker."""

    fairness: Fairness = DEFAULT_FAIRNESS
    """Limits of one tenant or connection beyond which others go first (ADR 0060, 0061)."""

    tracing: TraceSettings = NO_TRACES

    topic_lists: TopicListSettings = DEFAULT_TOPIC_LISTS
    """What is done about patterns of topic names (ADR 0096)."""

    cluster_secret_file: Path | None = None
    """The secret by which peers prove their membership (ADR 0057); None: every peer is accepted."""

    cluster_secret_required: bool = True
    """Whether peers without proof are refused; False while a secret is introduced or changed."""

    tls: TlsSettings = NO_TLS
    """Certificates, by which nodes know each other (ADR 0144) and clients know this process."""

    pulsar_tls_listen: Address | None = None
    """Address of ``pulsar+ssl``; None: it is not spoken."""

    pulsar_tls_advertise: Address | None = None
    """Address under which clients reach ``pulsar_tls_listen``; None if that is None."""

    client_listen: Address | None = None
    """Address of gRPC for clients without a certificate (ADR 0154); None: all need one, if there
    is TLS."""

    authentication: AuthenticationSettings = NO_AUTHENTICATION
    """How clients prove their role (ADR 0146)."""

    authorization: AuthorizationSettings = NO_AUTHORIZATION
    """What roles may do (ADR 0149)."""


def parse_config(arguments: Sequence[str], environment: Mapping[str, str]) -> DiscoveryConfig:
    """Return the configuration that flags and environment give.

    Raises:
        RefusesToStart: Something is missing or wrong; one sentence per mistake.
        SystemExit: An unknown flag, or ``--help``.
    """
    given = read_settings(
        "python -m discovery",
        "A discovery node: answers lookups, routes writes.",
        (
            *(*NODE_FLAGS, *PULSAR_FLAGS, *TRACE_FLAGS),
            *(
                MANAGERS_FLAG,
                _CLIENT_LISTEN_FLAG,
                _WORKERS_FLAG,
                *_FAIRNESS_FLAGS,
                *TOPIC_LIST_FLAGS,
            ),
            *AUTHENTICATION_FLAGS,
            *AUTHORIZATION_FLAGS,
        ),
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
        fairness=Fairness(
            **{
                field: given.number(_flag_of(field), least=least, most=most)
                for field, (_, least, most) in _FAIRNESS.items()
            }
        ),
        tracing=given.tracing(environment),
        topic_lists=topic_list_settings(given),
        cluster_secret_file=given.optional_path("--cluster-secret-file"),
        cluster_secret_required=given.truth("--cluster-secret-required"),
        tls=given.tls("--pulsar-listen"),
        pulsar_tls_listen=given.optional_address("--pulsar-tls-listen"),
        pulsar_tls_advertise=given.optional_advertised(
            "--pulsar-tls-advertise", "--pulsar-tls-listen"
        ),
        client_listen=given.optional_address("--client-listen"),
        authentication=authentication_settings(given),
        authorization=authorization_settings(given, "--client-listen"),
    )
    if config.workers > 1 and not (config.pulsar_listen or config.pulsar_tls_listen):
        given.mistakes.append("--workers is more than 1 without --pulsar-listen to share")
    if config.client_listen is not None:
        _check_client_listen(given, config.tls)
    given.check()
    return config


def _check_client_listen(given: Given, tls: TlsSettings) -> None:
    if tls.nodes is None:
        given.mistakes.append("--client-listen is given without --tls-cert-file")
    elif tls.are_clients_certified:
        given.mistakes.append(
            "--client-listen is for clients without a certificate, and --tls-require-client-cert "
            "is true: clients with one use the port of --listen"
        )


def _worker_role(given: Given, text: str) -> WorkerRole | None:
    if not text:
        return None
    number, colon, descriptor = text.partition(":")
    if not (colon and number.isdigit() and descriptor.isdigit()):
        given.mistakes.append(f"{WORKER_VARIABLE} is {text!r}: it is not for people to set")
        return None
    return WorkerRole(int(number), int(descriptor))
