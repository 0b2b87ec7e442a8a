"""The TLS of this process: read from its settings, and used by every channel that it opens.

A process belongs to one cluster, or works for one at a time, so what is in use is kept here, as the
cluster secret is.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.security.authority import load_certificate, read_pem
from nextgen.runtime.security.exclusions import excluded
from nextgen.runtime.security.node_identity import SERVING_ROLES, NodeIdentity, NodeRole
from nextgen.runtime.security.tls import (
    Certificate,
    Clock,
    TlsStore,
    client_context,
    peer_identity,
)
from nextgen.runtime.tls_settings import TlsFiles, TlsSettings

if TYPE_CHECKING:
    import grpc

CERT_FILE_VARIABLE = "NEXTGEN_TLS_CERT_FILE"
KEY_FILE_VARIABLE = "NEXTGEN_TLS_KEY_FILE"
CA_FILE_VARIABLE = "NEXTGEN_TLS_CA_FILE"
VARIABLES = (CERT_FILE_VARIABLE, KEY_FILE_VARIABLE, CA_FILE_VARIABLE)

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NodeTls:
    """What passes between nodes. Everybody at either end has a certificate of the cluster.

    The methods serve the Raft mesh, which knows nothing of certificates.
    """

    store: TlsStore
    identity: NodeIdentity

    @property
    def ca_file(self) -> Path:
        return self.store.files.ca_file

    def server_context(self) -> ssl.SSLContext:
        return self.store.server_context(ssl.CERT_REQUIRED)

    def client_context(self) -> ssl.SSLContext:
        return self.store.client_context()

    def flaw_of(self, certificate: Certificate, node_id: str) -> str:
        """Return why the holder of a verified certificate is not the peer ``node_id``; "" if it is.

        Peers of a Raft group have the role of this process.
        """
        peer = peer_identity(certificate)
        if peer is None:
            return "its certificate has no identity"
        if peer.cluster_id != self.identity.cluster_id or peer.role is not self.identity.role:
            return f"its certificate is for {peer}"
        if peer.name != node_id:
            return f"its certificate is for {peer.name}"
        return "it is excluded from the cluster" if peer.name in excluded() else ""


@dataclass(frozen=True, slots=True)
class CallerTls:
    """What a client calls with that is no process of the cluster and no operator of it.

    It checks whom it calls by the host's name. Its certificate, if it has one, names its role.
    """

    ca_file: Path
    own: TlsFiles | None = None

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return what gRPC needs.

        Raises:
            RefusesToStart: A file cannot be read.
        """
        import grpc

        ca = read_pem(self.ca_file)
        if self.own is None:
            return grpc.ssl_channel_credentials(ca)
        return grpc.ssl_channel_credentials(
            ca, read_pem(self.own.key_file), read_pem(self.own.cert_file)
        )

    def client_context(self) -> ssl.SSLContext:
        context = client_context(self.ca_file)
        if self.own is not None:
            context.load_cert_chain(self.own.cert_file, self.own.key_file)
        return context


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What clients connect to: HTTPS and ``pulsar+ssl``."""

    store: TlsStore
    are_clients_certified: bool

    def server_context(self) -> ssl.SSLContext:
        verify = ssl.CERT_REQUIRED if self.are_clients_certified else ssl.CERT_OPTIONAL
        return self.store.server_context(verify)


@dataclass(frozen=True, slots=True)
class ProcessTls:
    """The TLS of a process: each part None without."""

    nodes: NodeTls | None = None
    clients: ClientTls | None = None

    @property
    def web_scheme(self) -> str:
        """The scheme of this process's HTTP port."""
        return "http" if self.clients is None else "https"


PLAIN = ProcessTls()

_in_use: NodeTls | CallerTls | None = None


def use_tls(tls: NodeTls | CallerTls | None) -> None:
    """Make every channel that this process opens from here on use ``tls``. None: no TLS."""
    global _in_use
    _in_use = tls


def tls_in_use() -> NodeTls | CallerTls | None:
    """Return the last argument of ``use_tls``."""
    return _in_use


def tls_of_node(
    settings: TlsSettings,
    cluster_id: str,
    role: NodeRole,
    node_id: str,
    clock: Clock = time.monotonic,
) -> ProcessTls:
    """Return the TLS of a process of the cluster and use it.

    Raises:
        RefusesToStart: A file is unusable, or the certificate is not that of this process.
    """
    nodes = clients = None
    if settings.nodes is not None:
        store = TlsStore(settings.nodes, clock)
        own = NodeIdentity(cluster_id, role, node_id)
        if store.material.identity != own:
            has = store.material.identity or "nobody of a cluster"
            raise RefusesToStart(
                f"the certificate in {settings.nodes.cert_file} is for {has}, this is {own}: "
                f"issue one with 'nextgen certs issue {role} {node_id}'"
            )
        nodes = NodeTls(store, own)
    if settings.clients is not None:
        is_same = nodes is not None and settings.clients == settings.nodes
        client_store = (
            nodes.store if is_same and nodes is not None else TlsStore(settings.clients, clock)
        )
        clients = ClientTls(client_store, settings.are_clients_certified)
    use_tls(nodes)
    return ProcessTls(nodes, clients)


def tls_of_files(files: TlsFiles) -> NodeTls:
    """Return the TLS of an operator, or of any program with a node's certificate.

    Raises:
        RefusesToStart: A file is unusable, or the certificate has no identity.
    """
    store = TlsStore(files)
    identity = store.material.identity
    if identity is None:
        raise RefusesToStart(
            f"the certificate in {files.cert_file} is for no node and no operator of a cluster: "
            "issue one with 'nextgen certs issue operator NAME'"
        )
    return NodeTls(store, identity)


def tls_of_environment(environment: Mapping[str, str]) -> NodeTls | CallerTls | None:
    """Return the TLS that the environment names, None if it names no file.

    With an authority alone, or a client's certificate, it is that of a client.

    Raises:
        RefusesToStart: A file is unusable, or half of what is needed is named.
    """
    cert, key, ca = (environment.get(variable) for variable in VARIABLES)
    if not (cert or key or ca):
        return None
    if ca and not (cert or key):
        load_certificate(Path(ca))
        return CallerTls(Path(ca))
    if not (cert and key and ca):
        raise RefusesToStart(
            f"{', '.join(VARIABLES)} are given together, or the last one alone, or none"
        )
    files = TlsFiles(Path(cert), Path(key), Path(ca))
    store = TlsStore(files)
    identity = store.material.identity
    return CallerTls(files.ca_file, files) if identity is None else NodeTls(store, identity)


def tls_environment_of_child() -> dict[str, str]:
    """Return the variables by which a child process finds the TLS in use."""
    if _in_use is None:
        return {}
    files = _in_use.own if isinstance(_in_use, CallerTls) else _in_use.store.files
    if files is None:
        return {CA_FILE_VARIABLE: str(_in_use.ca_file.absolute())}
    paths = (str(path.absolute()) for path in files.paths)
    return dict(zip(VARIABLES, paths, strict=True))


def role_of_kind(kind: str) -> NodeRole:
    """Return the role of a process of the local cluster."""
    role = NodeRole(kind)
    assert role in SERVING_ROLES, f"{kind} is no kind of a process"
    return role
