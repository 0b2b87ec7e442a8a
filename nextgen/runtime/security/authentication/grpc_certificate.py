"""The certificate of a gRPC caller, as the transport has verified it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from nextgen.kernel.errors import Unauthenticated
from nextgen.kernel.limits.inbound import CLIENT_CERTIFICATES_KEPT_MAX
from nextgen.runtime.security.authentication.provider import Certificate


def certificate_of(context: Any) -> Certificate | None:
    """Return what names the role of a call's caller, in the form of ``getpeercert``; None without.

    It has the common names and the end, which is all that a role is taken from.

    Raises:
        Unauthenticated: It cannot be parsed.
    """
    found = context.auth_context().get("x509_pem_cert")
    try:
        return _parsed(bytes(found[0])) if found else None
    except ValueError as error:
        raise Unauthenticated("the client's certificate cannot be parsed") from error


@lru_cache(maxsize=CLIENT_CERTIFICATES_KEPT_MAX)
def _parsed(pem: bytes) -> Certificate:
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return {
        "subject": tuple((("commonName", name.value),) for name in names),
        "notAfter": certificate.not_valid_after_utc.strftime("%b %d %H:%M:%S %Y GMT"),
    }
