"""TLS of a process: the files, contexts made of them, and changed files without a restart.

A process has one set of files for what passes between nodes and, unless told otherwise, the same
for clients. Contexts speak TLS 1.2 with AEAD suites and forward secrecy, and TLS 1.3; there is
neither renegotiation nor compression. Files are looked at again when somebody connects: a new pair
that is complete and matches is used from that handshake on, anything else is logged and the pair
before stays in use.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from cryptography import x509

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import TLS_FILES_CHECK_MS
from nextgen.runtime.security.authority import load_certificate, read_pem, uris_of
from nextgen.runtime.security.node_identity import NodeIdentity, identity_of
from nextgen.runtime.tls_settings import TlsFiles

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2. Those of TLS 1.3 are all of this kind."""

Clock = Callable[[], float]
"""Returns seconds of a monotonic clock."""

Certificate = Any
"""What ``ssl.SSLObject.getpeercert`` returns: a dictionary, {} or None without a certificate."""

_Stamp = tuple[tuple[int, int, int], ...]

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The content of the files at one time, checked: the key is that of the certificate."""

    cert: bytes
    key: bytes = field(repr=False)
    ca: bytes
    certificate: x509.Certificate
    identity: NodeIdentity | None
    """None in a certificate of somebody else's authority, which has no URI of ours."""


class TlsStore:
    """The present content of ``files``. Owned by one event loop; gRPC's threads read it too.

    Raises:
        RefusesToStart: The files are unusable; the message names the one that is.
    """

    def __init__(self, files: TlsFiles, clock: Clock = time.monotonic) -> None:
        self.files = files
        self._clock = clock
        self._stamp = _stamp_of(files)
        self._material = _load(files)
        self._looked_at = clock()
        self._contexts: dict[tuple[str, ssl.VerifyMode], ssl.SSLContext] = {}
        self.reloads = 0
        """How often changed files were taken."""

    def __repr__(self) -> str:
        return f"<TlsStore {self.files.cert_file} reloads={self.reloads}>"

    @property
    def material(self) -> TlsMaterial:
        """The content of the files; of the last usable ones if they are not."""
        now = self._clock()
        if (now - self._looked_at) * 1_000 >= TLS_FILES_CHECK_MS:
            self._looked_at = now
            self._look()
        return self._material

    def server_context(self, verify: ssl.VerifyMode) -> ssl.SSLContext:
        """Return the context of a listener. ``verify``: whether clients need a certificate."""
        return self._context("server", verify)

    def client_context(self) -> ssl.SSLContext:
        """Return the context of a caller between nodes; no host name is checked."""
        return self._context("client", ssl.CERT_REQUIRED)

    def _context(self, side: str, verify: ssl.VerifyMode) -> ssl.SSLContext:
        material = self.material
        context = self._contexts.get((side, verify))
        if context is None:
            server_side = side == "server"
            context = _new_context(server_side=server_side)
            context.verify_mode = verify
            context.load_cert_chain(self.files.cert_file, self.files.key_file)
            context.load_verify_locations(cadata=material.ca.decode())
            self._contexts[side, verify] = context
        return context

    def _look(self) -> None:
        """Take the files if they have changed and are usable."""
        stamp = _stamp_of(self.files)
        if stamp == self._stamp:
            return
        try:
            material = _load(self.files)
        except RefusesToStart as error:
            _logger.warning("changed certificates are not usable", reason=str(error))
            return
        if _stamp_of(self.files) != stamp:
            return  # They change at this moment: next time.
        if material.identity != self._material.identity:
            _logger.warning(
                "a changed certificate is for somebody else and is not taken",
                file=str(self.files.cert_file),
                identity=str(material.identity),
            )
            return
        self._stamp, self._material = stamp, material
        self._contexts.clear()
        self.reloads += 1
        _logger.info(
            "changed certificates are in use",
            file=str(self.files.cert_file),
            ends_at=material.certificate.not_valid_after_utc.isoformat(),
        )


def client_context(ca_file: Path | None, own: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """Return the context of a client that trusts ``ca_file`` and checks host names.

    ``ca_file``: None trusts the machine's authorities. ``own``: the client's certificate and key.

    Raises:
        RefusesToStart: A file cannot be read, one has no certificate, or the key is another one's.
    """
    context = _new_context(server_side=False)
    context.check_hostname = True
    if ca_file is None:
        context.load_default_certs()
    else:
        load_certificate(ca_file)
        context.load_verify_locations(cadata=read_pem(ca_file).decode())
    if own is not None:
        cert_file, key_file = own
        load_certificate(cert_file)
        read_pem(key_file)
        _load_pair(context, cert_file, key_file)
    return context


def peer_identity(certificate: Certificate) -> NodeIdentity | None:
    """Return the identity in a peer's verified certificate."""
    names = (certificate or {}).get("subjectAltName", ())
    return identity_of(value for kind, value in names if kind == "URI")


def peer_common_name(certificate: Certificate) -> str:
    """Return the common name of a peer's verified certificate, by which Pulsar knows a client."""
    subject = (certificate or {}).get("subject", ())
    return next((value for part in subject for key, value in part if key == "commonName"), "")


def _new_context(*, server_side: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    return context


def _load(files: TlsFiles) -> TlsMaterial:
    certificate = load_certificate(files.cert_file)
    load_certificate(files.ca_file)
    key, cert, ca = read_pem(files.key_file), read_pem(files.cert_file), read_pem(files.ca_file)
    _load_pair(_new_context(server_side=True), files.cert_file, files.key_file)
    return TlsMaterial(cert, key, ca, certificate, identity_of(uris_of(certificate)))


def _load_pair(context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
    """Give a context a certificate and its key.

    Raises:
        RefusesToStart: They do not match, or the key has a password.
    """
    try:
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise RefusesToStart(
            f"{key_file} is not the key of {cert_file}, or has a password"
        ) from error


def _no_password() -> str:
    """Answer the library's question, which would otherwise go to the terminal."""
    raise ValueError("the key has a password")


def _stamp_of(files: TlsFiles) -> _Stamp:
    return tuple(_stamp_of_file(path) for path in files.paths)


def _stamp_of_file(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_ino, status.st_size
