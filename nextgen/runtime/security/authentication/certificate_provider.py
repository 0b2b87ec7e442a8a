"""Method ``tls``: the common name of the client's certificate is the role, as with Pulsar."""

from __future__ import annotations

import ssl

from nextgen.kernel.errors import Unauthenticated
from nextgen.runtime.security.authentication.provider import (
    Authenticated,
    Certificate,
    Credentials,
    checked_role,
)


class CertificateProvider:
    """Accepts clients whose certificate the transport has verified."""

    method = "tls"
    is_slow = False
    is_remembered = False

    def generation(self) -> int:
        """See ``AuthenticationProvider``. The transport has its own way to take new authorities."""
        return 0

    def authenticate(self, credentials: Credentials) -> Authenticated:
        """See ``AuthenticationProvider``."""
        if not credentials.certificate:
            raise Unauthenticated("the client has shown no certificate")
        return Authenticated(
            checked_role(_common_name(credentials.certificate)),
            _expiry_s(credentials.certificate),
        )


def _common_name(certificate: Certificate) -> str:
    names = [
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]
    if len(names) != 1:
        raise Unauthenticated(f"the client's certificate has {len(names)} common names")
    return str(names[0])


def _expiry_s(certificate: Certificate) -> float | None:
    ends = certificate.get("notAfter")
    return None if ends is None else float(ssl.cert_time_to_seconds(str(ends)))
