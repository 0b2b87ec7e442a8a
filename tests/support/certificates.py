"""An authority for a test, and certificates of it, of another one, and of the past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from nextgen.runtime.security.authority import (
    CA_NAME,
    Authority,
    CertificateRequest,
    cert_file_of,
)
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole
from nextgen.runtime.security.process_tls import NodeTls, tls_of_files
from nextgen.runtime.tls_settings import TlsFiles

CLUSTER = "blue"
HOSTS = ("localhost", "127.0.0.1", "::1")


class Certificates:
    """Makes certificates in ``directory``, whose authority is that of the cluster ``blue``."""

    def __init__(self, directory: Path, cluster_id: str = CLUSTER) -> None:
        self.directory = directory
        self.authority = Authority.make(directory, cluster_id)

    @property
    def ca_file(self) -> Path:
        return cert_file_of(self.directory, CA_NAME)

    def files(
        self, role: NodeRole, name: str, *, expired: bool = False, replace: bool = False
    ) -> TlsFiles:
        """Issue a certificate of a node or an operator; ``expired``: it ended a day ago."""
        identity = NodeIdentity(self.authority.cluster_id, role, name)
        return self._issued(name, CertificateRequest(name, identity, HOSTS), expired, replace)

    def client(self, name: str) -> TlsFiles:
        """Issue a certificate of a client of Pulsar, whose role is ``name``."""
        return self._issued(name, CertificateRequest(name), False, False)

    def node(self, role: NodeRole, name: str, *, expired: bool = False) -> NodeTls:
        """Return the TLS of a node with a new certificate."""
        return tls_of_files(self.files(role, name, expired=expired))

    def trusting(self, files: TlsFiles) -> NodeTls:
        """Return the TLS of somebody with ``files`` who trusts this authority."""
        return tls_of_files(TlsFiles(files.cert_file, files.key_file, self.ca_file))

    def _issued(
        self, name: str, request: CertificateRequest, expired: bool, replace: bool
    ) -> TlsFiles:
        now = datetime.now(UTC)
        if expired:
            now -= timedelta(days=request.days + 1)
        issued = self.authority.issue(name, request, replace=replace, now=now)
        return TlsFiles(issued.cert_file, issued.key_file, self.ca_file)
