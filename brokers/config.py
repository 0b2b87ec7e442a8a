"""The settings of one broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nextgen.kernel.limits.cluster import (
    ADDRESS_BYTES_MAX,
    BROKER_CAPACITY_UNITS_MAX,
    STORED_INTEGER_MAX,
)
from nextgen.kernel.limits.placement import BROKER_DRAIN_MS_MAX
from nextgen.pulsar.service_urls import (
    ServiceUrls,
    parse_listeners,
    with_listeners,
)
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
    TRACE_FLAGS,
    Address,
    Flag,
    Given,
    TraceSettings,
    read_settings,
)
from nextgen.runtime.tls_settings import NO_TLS, TlsSettings

_LISTENERS = "--advertised-listeners"
_INTERNAL_LISTENER = "--internal-listener-name"

_FLAGS = (
    *NODE_FLAGS,
    *PULSAR_FLAGS,
    *TRACE_FLAGS,
    MANAGERS_FLAG,
    *TOPIC_LIST_FLAGS,
    *AUTHENTICATION_FLAGS,
    *AUTHORIZATION_FLAGS,
    Flag(
        _LISTENERS,
        "addresses of listeners that clients may name: name:pulsar://host:port,...",
        "",
        ("--advertisedListeners",),
    ),
    Flag(
        _INTERNAL_LISTENER,
        "the listener of clients that name none; default: the first",
        "",
        ("--internalListenerName",),
    ),
    Flag("--sidecar", "socket of the plug-in of a stock broker, whose topics these are", ""),
    Flag("--capacity-units", "topics and partitions to serve at most", "50000"),
    Flag("--zone", "failure domain, free text", ""),
    Flag("--rack", "failure domain within the zone, free text", ""),
    Flag("--data-dir", "directory that remembers this broker's identity; default: none", ""),
    Flag("--drain-ms-max", "at a stop, time for other brokers to take the units; 0: none", "30000"),
    Flag("--ledger-dir", "directory of the messages, the same for all brokers of the cluster", ""),
    Flag("--retention-time-ms", "time to keep fully acknowledged messages", "3600000"),
    Flag("--retention-bytes", "bytes of them to keep per topic at most", "1073741824"),
    Flag(
        "--backlog-bytes-max", "unacknowledged bytes per topic; beyond, SENDs fail", "10737418240"
    ),
)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The whole configuration of this process."""

    node_id: str
    """The node id, which is also the broker id of its session and capacity."""

    cluster_id: str
    """A broker manager of another cluster refuses this broker."""

    listen: Address
    """BrokerService over gRPC."""

    advertise: Address
    """The address under which others reach ``listen``."""

    http_listen: Address
    """Metrics and probes."""

    cluster_managers: tuple[Address, ...]
    """The cluster manager's replicas, in any order."""

    capacity_units: int
    """Topics and partitions that this broker serves at most."""

    zone: str
    """Failure domain, free text; empty: none."""

    data_dir: Path | None
    """Directory with the broker's identity and a lock against a second process; no messages."""

    pulsar_listen: Address | None
    """Address for the Pulsar protocol; None: the broker serves no clients."""

    pulsar_advertise: Address | None
    """Address under which clients reach ``pulsar_listen``; None if that is None."""

    ledger_dir: Path | None
    """Directory in which all brokers store messages, on a coherent local file system, not NFS. Set
    if ``pulsar_listen`` is, else None."""

    retention_time_ms: int
    """Messages that every durable subscription has acknowledged are kept this long. An hour, so
    that they can be read again."""

    retention_bytes: int
    """At most this many bytes of them are kept per topic or partition. A gibibyte: 16 segments."""

    backlog_bytes_max: int
    """Backlog of the slowest durable subscription of a topic or partition above which messages are
    refused. Ten gibibytes: Pulsar's own default of earlier releases."""

    drain_ms_max: int = 30_000
    """Time at SIGTERM for other brokers to take the units. Half a minute: the time that service
    managers give a process before they kill it."""

    rack: str = ""
    """Failure domain within the zone, free text; empty: none."""

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

    advertised_urls: str = ""
    """Addresses of advertised listeners as one text (see ``service_urls``), instead of both."""

    authentication: AuthenticationSettings = NO_AUTHENTICATION
    """How clients prove their role (ADR 0146)."""

    authorization: AuthorizationSettings = NO_AUTHORIZATION
    """What roles may do (ADR 0149)."""

    sidecar: Path | None = None
    """The socket of a stock broker's plug-in (ADR 0177); None: this process is the broker."""


def parse_config(arguments: Sequence[str], environment: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration that flags and environment give.

    Raises:
        RefusesToStart: Something is missing or wrong; one sentence per mistake.
        SystemExit: An unknown flag, or ``--help``.
    """
    given = read_settings(
        "python -m brokers", "A broker: serves assigned topics.", _FLAGS, arguments, environment
    )
    advertised_urls = _advertised_urls(given)
    config = BrokerConfig(
        node_id=given.identifier("--node-id"),
        cluster_id=given.identifier("--cluster-id"),
        listen=given.address("--listen"),
        advertise=given.advertised("--advertise", "--listen"),
        http_listen=given.address("--http-listen"),
        cluster_managers=given.addresses("--cluster-managers"),
        capacity_units=given.number("--capacity-units", least=1, most=BROKER_CAPACITY_UNITS_MAX),
        zone=given.text("--zone"),
        rack=given.text("--rack"),
        data_dir=given.path("--data-dir") if given.text("--data-dir") else None,
        pulsar_listen=given.optional_address("--pulsar-listen"),
        pulsar_advertise=(
            None
            if advertised_urls
            else given.optional_advertised("--pulsar-advertise", "--pulsar-listen")
        ),
        ledger_dir=_ledger_dir(given),
        retention_time_ms=given.number("--retention-time-ms", least=0, most=STORED_INTEGER_MAX),
        retention_bytes=given.number("--retention-bytes", least=0, most=STORED_INTEGER_MAX),
        backlog_bytes_max=given.number("--backlog-bytes-max", least=1, most=STORED_INTEGER_MAX),
        drain_ms_max=given.number("--drain-ms-max", least=0, most=BROKER_DRAIN_MS_MAX),
        tracing=given.tracing(environment),
        topic_lists=topic_list_settings(given),
        cluster_secret_file=given.optional_path("--cluster-secret-file"),
        cluster_secret_required=given.truth("--cluster-secret-required"),
        tls=given.tls("--pulsar-listen"),
        pulsar_tls_listen=given.optional_address("--pulsar-tls-listen"),
        pulsar_tls_advertise=(
            None
            if advertised_urls
            else given.optional_advertised("--pulsar-tls-advertise", "--pulsar-tls-listen")
        ),
        advertised_urls=advertised_urls,
        authentication=authentication_settings(given),
        authorization=authorization_settings(given),
        sidecar=_sidecar(given),
    )
    given.check()
    return config


def _sidecar(given: Given) -> Path | None:
    """Return the socket of the plug-in, None if this process serves topics itself."""
    if given.text("--sidecar"):
        for name in ("--pulsar-listen", "--pulsar-tls-listen", "--ledger-dir", _LISTENERS):
            if given.text(name):
                given.mistakes.append(f"with --sidecar the stock broker has what {name} is for")
    return given.optional_path("--sidecar")


def _advertised_urls(given: Given) -> str:
    """Return the addresses of the advertised listeners as one text; "" if none is given."""
    listeners = _listeners(given)
    if not listeners:
        if given.text(_INTERNAL_LISTENER):
            given.mistakes.append(f"{_INTERNAL_LISTENER} is given without {_LISTENERS}")
        return ""
    for name in ("--pulsar-advertise", "--pulsar-tls-advertise"):
        if given.text(name):
            given.mistakes.append(f"{name} and {_LISTENERS} are not given together")
    internal = given.text(_INTERNAL_LISTENER) or next(iter(listeners))
    if internal not in listeners:
        given.mistakes.append(f"{_INTERNAL_LISTENER} {internal} is not in {_LISTENERS}")
        return ""
    for number, port in enumerate(("--pulsar-listen", "--pulsar-tls-listen")):
        if not given.text(port) and any(urls[number] for urls in listeners.values()):
            given.mistakes.append(f"{_LISTENERS} has addresses for {port}, which is missing")
    text = with_listeners(",".join(filter(None, listeners[internal])), listeners)
    if (size := len(text.encode())) > ADDRESS_BYTES_MAX:
        given.mistakes.append(
            f"{_LISTENERS} takes {size} bytes, those of the internal listener twice: "
            f"at most {ADDRESS_BYTES_MAX} are stored"
        )
    return text


def _listeners(given: Given) -> dict[str, ServiceUrls]:
    try:
        return parse_listeners(given.text(_LISTENERS))
    except ValueError as error:
        given.mistakes.append(f"{_LISTENERS}: {error}")
        return {}


def _ledger_dir(given: Given) -> Path | None:
    has_ledgers = bool(given.text("--ledger-dir"))
    has_pulsar = bool(given.text("--pulsar-listen") or given.text("--pulsar-tls-listen"))
    if has_ledgers != has_pulsar:
        missing = "--pulsar-listen" if has_ledgers else "--ledger-dir"
        given.mistakes.append(f"clients are served from ledgers: {missing} is missing")
    return given.path("--ledger-dir") if has_ledgers else None
