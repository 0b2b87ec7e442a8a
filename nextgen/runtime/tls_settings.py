"""Which files with certificates a process has, as its settings say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: a certificate with its intermediate ones, its key, and the trusted authorities."""

    cert_file: Path
    key_file: Path
    ca_file: Path

    @property
    def paths(self) -> tuple[Path, Path, Path]:
        return self.cert_file, self.key_file, self.ca_file


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of a process."""

    nodes: TlsFiles | None = None
    """Of gRPC and Raft, which need certificates at both ends; None: no TLS there."""

    clients: TlsFiles | None = None
    """Of HTTPS and ``pulsar+ssl``; None: neither is served."""

    are_clients_certified: bool = False
    """Whether clients too need a certificate of an authority in ``clients.ca_file``."""


NO_TLS = TlsSettings()
