"""TLS as the Raft mesh uses it: certificates at both ends, and bounded handshakes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nextgen.runtime.security.exclusions import on_excluded
from nextgen.runtime.security.process_tls import NodeTls
from nextgen.runtime.servers.tls_door import TlsDoor


@dataclass(frozen=True, slots=True)
class NodeMeshTls:
    """The ``MeshTls`` of a process with certificates."""

    nodes: NodeTls

    @classmethod
    def of(cls, nodes: NodeTls | None) -> NodeMeshTls | None:
        """Return the mesh's TLS, None without certificates."""
        return None if nodes is None else cls(nodes)

    def door(self, factory: Callable[[], asyncio.Protocol]) -> TlsDoor:
        """Return what makes the protocols of accepted connections."""
        return TlsDoor(self.nodes.server_context, factory)

    def client_context(self) -> ssl.SSLContext:
        """Return the context to dial with."""
        return self.nodes.client_context()

    def flaw_of(self, certificate: Any, node_id: str) -> str:
        """See ``NodeTls.flaw_of``."""
        return self.nodes.flaw_of(certificate, node_id)

    def on_excluded(self, listener: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        """See ``exclusions.on_excluded``."""
        return on_excluded(listener)
