"""Certificates for tests of TLS, made by the openssl command when a test needs them."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_DAYS = "2"


@dataclass(frozen=True)
class Certificate:
    """Files in PEM; the key in PKCS 8, as Java reads it."""

    certificate: Path
    key: Path


class Authority:
    """One authority and the certificates that it has signed, in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl command to make certificates with")
        self._folder = folder
        self.own = self._made(name, ("-x509",))

    def signed(self, name: str, *subjects: str) -> Certificate:
        """Return a certificate for subjects such as ``DNS:localhost`` or ``IP:127.0.0.1``."""
        extension = ("-addext", f"subjectAltName={','.join(subjects)}") if subjects else ()
        authority = ("-CA", str(self.own.certificate), "-CAkey", str(self.own.key))
        return self._made(name, ("-x509", *authority, *extension))

    def trusting(self, own: Certificate | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority alone."""
        context = ssl.create_default_context(cafile=self.own.certificate)
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        return context

    def serving(self, own: Certificate, *, needs_client: bool = False) -> ssl.SSLContext:
        """Return the context of a server."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(own.certificate, own.key)
        if needs_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.own.certificate)
        return context

    def _made(self, name: str, options: tuple[str, ...]) -> Certificate:
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem")
        subprocess.run(
            [
                *("openssl", "req", *options, "-nodes", "-days", _DAYS, "-subj", f"/CN={name}"),
                *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-keyout", str(made.key), "-out", str(made.certificate)),
            ],
            check=True,
            capture_output=True,
        )
        return made
