"""What a provider of authentication is given and promises. Others can be added by this interface.

A provider serves one method of Pulsar: ``token``, ``basic``, ``tls``. Several may serve the same;
they are tried in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nextgen.kernel.errors import Unauthenticated
from nextgen.kernel.governance.permissions import role_problem

Certificate = Mapping[str, Any]
"""A verified certificate, as ``ssl.SSLSocket.getpeercert`` describes it."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client proves its identity with."""

    method: str
    """``auth_method_name`` of Pulsar; "none" without one."""

    data: bytes = field(default=b"", repr=False)
    """A token, ``user:password``; empty if the certificate is the proof. NEVER logged."""

    certificate: Certificate | None = None
    """The client's certificate, which the transport has verified; None without one."""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """A role, and until when the proof of it holds."""

    role: str
    expires_at_s: float | None = None
    """Unix seconds; None: the proof does not expire."""


class AuthenticationProvider(Protocol):
    """Checks the credentials of one method."""

    method: str
    """``auth_method_name`` of the credentials that it checks."""

    is_slow: bool
    """Whether a check takes milliseconds: it is then made in another thread, and there only."""

    is_remembered: bool
    """Whether a check's outcome may be remembered by the digest of the credentials' data."""

    def generation(self) -> int:
        """Return a number that grows when the keys or passwords change. Called for every check.

        Outcomes of earlier generations are checked anew.
        """

    def authenticate(self, credentials: Credentials) -> Authenticated:
        """Return whose credentials they are.

        Raises:
            Unauthenticated: They are invalid. The message says why and has nothing secret in it.
        """


def checked_role(role: object) -> str:
    """Return ``role`` if it can be the name of one.

    Raises:
        Unauthenticated: It is no text, empty, too long, or has characters that cannot be seen.
    """
    if not isinstance(role, str) or not role:
        raise Unauthenticated("the role is not a text with at least one character")
    if problem := role_problem(role):
        raise Unauthenticated(problem)
    return role
