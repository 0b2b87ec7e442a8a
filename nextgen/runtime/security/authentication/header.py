"""Credentials in the ``authorization`` header of HTTP, and in gRPC's metadata of that name.

Bearer TOKEN                          method token
Basic base64(user:password)           method basic
none, and a verified certificate      method tls, if the server takes certificates
"""

from __future__ import annotations

import base64
import binascii

from nextgen.kernel.errors import Unauthenticated
from nextgen.kernel.limits.inbound import AUTH_DATA_BYTES_MAX
from nextgen.runtime.security.authentication.authenticator import NO_METHOD, Authenticator
from nextgen.runtime.security.authentication.provider import Certificate, Credentials

HEADER = "authorization"

ORIGINAL = "x-original-principal"
"""The header in which a proxy names the role of its client, as Pulsar's proxy does."""


def credentials_in(
    header: str | None, certificate: Certificate | None, authenticator: Authenticator
) -> Credentials:
    """Return what a request proves its client's role with.

    Raises:
        Unauthenticated: The header cannot be read. Nothing of it is in the message.
    """
    if not header:
        if certificate and authenticator.takes_certificates:
            return Credentials("tls", b"", certificate)
        return Credentials(NO_METHOD)
    if len(header) > 2 * AUTH_DATA_BYTES_MAX:
        raise Unauthenticated(
            f"the authorization has more than {2 * AUTH_DATA_BYTES_MAX} characters"
        )
    scheme, _, value = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return Credentials("token", _bytes(value), certificate)
        case "basic":
            try:
                return Credentials("basic", base64.b64decode(_bytes(value), validate=True))
            except binascii.Error as error:
                raise Unauthenticated("Basic is not followed by base64") from error
    raise Unauthenticated("the authorization is neither Bearer nor Basic")


def _bytes(text: str) -> bytes:
    try:
        return text.strip().encode("ascii")
    except UnicodeEncodeError as error:
        raise Unauthenticated("the authorization has characters that are not ASCII") from error
