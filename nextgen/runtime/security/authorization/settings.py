"""The settings of authorisation, under Pulsar's names, and the rules that they make (ADR 0149)."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.governance.access_rules import AccessRules
from nextgen.kernel.governance.permissions import role_problem
from nextgen.kernel.limits.inbound import SUPERUSERS_MAX
from nextgen.runtime.settings import Flag, Given, is_loopback

_ENABLED = "--authorization-enabled"
_AUTHENTICATED = "--authentication-enabled"
_SUPERUSERS = "--super-user-roles"
_WILDCARDS = "--authorization-allow-wildcards-matching"

AUTHORIZATION_FLAGS = (
    Flag(
        _ENABLED,
        "true: clients may do what their role has permissions for; needs authentication",
        "false",
        ("--authorizationEnabled",),
    ),
    Flag(_SUPERUSERS, "roles that may do everything, by commas", "", ("--superUserRoles",)),
    Flag(
        _WILDCARDS,
        "true: a permission's role may begin or end with *, which stands for any characters",
        "false",
        ("--authorizationAllowWildcardsMatching",),
    ),
)
"""Flags of every process that clients connect to. Their aliases are Pulsar's names."""


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    """Who may do what without permissions, and how roles are compared."""

    rules: AccessRules | None = None
    """None: every client may do everything."""

    def flags(self) -> dict[str, str]:
        """Return the flags that give another process the same settings."""
        if self.rules is None:
            return {}
        return {
            _ENABLED: "true",
            _SUPERUSERS: ",".join(sorted(self.rules.superusers)),
            _WILDCARDS: str(self.rules.wildcards).lower(),
        }


NO_AUTHORIZATION = AuthorizationSettings()


def authorization_settings(given: Given, *more_listens: str) -> AuthorizationSettings:
    """Return the settings that ``AUTHORIZATION_FLAGS`` give.

    Notes a mistake if clients prove no role, because nobody could be told apart; and if clients
    beyond this machine would need no permissions, unless ``--insecure`` is true.
    """
    wildcards = given.truth(_WILDCARDS)
    superusers = [role.strip() for role in given.text(_SUPERUSERS).split(",") if role.strip()]
    if len(superusers) > SUPERUSERS_MAX:
        given.mistakes.append(f"{_SUPERUSERS} has more than {SUPERUSERS_MAX} roles")
    given.mistakes += [
        f"{_SUPERUSERS}: {problem}" for role in superusers if (problem := role_problem(role))
    ]
    if not given.truth(_ENABLED):
        _check_exposure(given, more_listens)
        return NO_AUTHORIZATION
    if not given.truth(_AUTHENTICATED):
        given.mistakes.append(f"{_ENABLED} is true without {_AUTHENTICATED} true")
    return AuthorizationSettings(AccessRules(frozenset(superusers), wildcards))


def _check_exposure(given: Given, more_listens: tuple[str, ...]) -> None:
    """Note a mistake if clients beyond this machine would need no permission."""
    if given.truth("--insecure"):
        return
    listens = ("--listen", "--http-listen", "--pulsar-listen", "--pulsar-tls-listen")
    for name in (*listens, *more_listens):
        text = given.text(name)
        address = given.parse_address(name, text, note_mistakes=False) if text else None
        if address is not None and address.host and not is_loopback(address.host):
            given.mistakes.append(
                f"{name} {address} is beyond this machine, and clients would need no permissions: "
                f"give {_AUTHENTICATED} true and {_ENABLED} true, or --insecure true"
            )
            return
