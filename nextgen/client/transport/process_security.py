"""What secures the calls between processes, from the configuration of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nextgen.client.transport.member_gate import MemberGate
from nextgen.client.transport.role_gate import RoleGate
from nextgen.runtime.security.cluster_proof import ClusterCredentials, credentials_of_node
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.process_tls import ProcessTls, tls_of_node
from nextgen.runtime.security.tls import TlsStore
from nextgen.runtime.tls_settings import TlsSettings


class SecuredConfig(Protocol):
    """The part of a process's configuration that is about security."""

    @property
    def node_id(self) -> str: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def cluster_secret_file(self) -> Path | None: ...
    @property
    def cluster_secret_required(self) -> bool: ...
    @property
    def tls(self) -> TlsSettings: ...


@dataclass(frozen=True, slots=True)
class ProcessSecurity:
    """Certificates where there are some, else the cluster secret, if there is one."""

    tls: ProcessTls
    credentials: ClusterCredentials | None
    gate: Any
    """The interceptor that admits calls."""

    @property
    def grpc(self) -> TlsStore | None:
        """The certificates of the gRPC port; None: it has no TLS."""
        return None if self.tls.nodes is None else self.tls.nodes.store


def security_of(config: SecuredConfig, role: NodeRole, *, node_id: str = "") -> ProcessSecurity:
    """Return what secures a process, and use it for the channels that it opens.

    ``node_id``: whose certificate it has, by default the configuration's.

    Raises:
        RefusesToStart: A certificate or the secret is unusable, or somebody else's.
    """
    tls = tls_of_node(config.tls, config.cluster_id, role, node_id or config.node_id)
    has_tls = tls.nodes is not None
    credentials = credentials_of_node(
        config.cluster_id, config.cluster_secret_file, has_tls=has_tls
    )
    gate: Any = MemberGate(credentials, is_required=config.cluster_secret_required)
    if has_tls:
        gate = RoleGate(config.cluster_id)
    return ProcessSecurity(tls, credentials, gate)
