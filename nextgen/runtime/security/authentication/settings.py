"""The settings of authentication, under Pulsar's names, and the ``Authenticator`` they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from nextgen.kernel.errors import RefusesToStart, Unauthenticated
from nextgen.kernel.limits.inbound import PROXY_ROLES_MAX
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authentication.basic_provider import BasicProvider
from nextgen.runtime.security.authentication.certificate_provider import CertificateProvider
from nextgen.runtime.security.authentication.jwks_provider import JwksProvider, parsed_keys
from nextgen.runtime.security.authentication.key_source import ReloadedKey
from nextgen.runtime.security.authentication.passwords import parsed_users
from nextgen.runtime.security.authentication.provider import AuthenticationProvider, checked_role
from nextgen.runtime.security.authentication.token_keys import public_key, secret_key
from nextgen.runtime.security.authentication.token_provider import (
    KeyLoader,
    TokenProvider,
    token_keys,
)
from nextgen.runtime.security.authentication.tokens import TokenRules
from nextgen.runtime.settings import Flag, Given

_LEEWAY_S_MAX = 3_600

_PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "AuthenticationProviderToken": "token",
        "AuthenticationProviderBasic": "basic",
        "AuthenticationProviderTls": "tls",
        "AuthenticationProviderOpenID": "oidc",
    }
)
"""Our names of Pulsar's classes, whose package is not looked at."""


def _flag(name: str, pulsar: str, description: str, default: str = "") -> Flag:
    return Flag(name, description, default, (f"--{pulsar}",) if pulsar else ())


AUTHENTICATION_FLAGS = (
    _flag(
        "--authentication-enabled",
        "authenticationEnabled",
        "true: clients have to prove their role",
        "false",
    ),
    _flag(
        "--authentication-providers",
        "authenticationProviders",
        "what they prove it by: token,basic,tls,oidc or Pulsar's classes; default: as is set below",
    ),
    _flag("--token-secret-key", "tokenSecretKey", "secret key of tokens: file:, data: or base64"),
    _flag("--token-public-key", "tokenPublicKey", "public key of tokens: file:, data: or base64"),
    _flag("--token-previous-secret-key", "", "secret key that is accepted too, during a change"),
    _flag("--token-previous-public-key", "", "public key that is accepted too, during a change"),
    _flag("--token-auth-claim", "tokenAuthClaim", "claim of a token with the role", "sub"),
    _flag("--token-audience-claim", "tokenAudienceClaim", "claim with its audience", "aud"),
    _flag("--token-audience", "tokenAudience", "audience that a token has to be for; default: any"),
    _flag(
        "--token-allowed-clock-skew-seconds",
        "tokenAllowedClockSkewSeconds",
        "seconds by which clocks may differ",
        "0",
    ),
    _flag("--basic-auth-conf", "basicAuthConf", "password file: file:, data: or base64"),
    _flag("--openid-jwks-file", "", "file with the public keys of an OpenID provider (JWKS)"),
    _flag(
        "--openid-allowed-token-issuers",
        "openIDAllowedTokenIssuers",
        "issuers of tokens by commas, as in their claim iss",
    ),
    _flag(
        "--openid-allowed-audiences",
        "openIDAllowedAudiences",
        "audiences by commas, one of which a token has to be for",
    ),
    _flag("--openid-role-claim", "openIDRoleClaim", "claim with the role", "sub"),
    _flag(
        "--anonymous-user-role",
        "anonymousUserRole",
        "role of clients that prove none; default: they are refused",
    ),
    _flag("--proxy-roles", "proxyRoles", "roles of proxies by commas, which act for their clients"),
    _flag(
        "--authenticate-original-auth-data",
        "authenticateOriginalAuthData",
        "true: what a proxy's client proved to the proxy is checked here too",
        "false",
    ),
)
"""Flags of every process that clients connect to. Their aliases are Pulsar's names."""


_DEFAULTS = {flag.name: flag.default or "" for flag in AUTHENTICATION_FLAGS}


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """The values by flag that are not the default; secrets can be among them, so no ``repr`` shows
    them."""

    is_enabled: bool = False
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def flags(self) -> dict[str, str]:
        """Return the flags that give another process the same settings."""
        return dict(self.values)

    def authenticator(self) -> Authenticator | None:
        """Return what checks clients, None if they prove nothing here.

        Raises:
            RefusesToStart: A key or a file is unusable, or the settings contradict each other.
        """
        return _authenticator({**_DEFAULTS, **self.values}) if self.is_enabled else None


NO_AUTHENTICATION = AuthenticationSettings()


def authentication_settings(given: Given) -> AuthenticationSettings:
    """Return the settings that ``AUTHENTICATION_FLAGS`` give."""
    is_enabled = given.truth("--authentication-enabled")
    given.truth("--authenticate-original-auth-data")
    given.number("--token-allowed-clock-skew-seconds", least=0, most=_LEEWAY_S_MAX)
    values = {name: given.text(name) for name in _DEFAULTS}
    chosen = {name: value for name, value in values.items() if value != _DEFAULTS[name]}
    return AuthenticationSettings(is_enabled, chosen)


def _authenticator(values: Mapping[str, str]) -> Authenticator:
    makers = {"token": _token, "basic": _basic, "tls": _tls, "oidc": _oidc}
    providers = [makers[name](values) for name in _provider_names(values)]
    if not providers:
        raise RefusesToStart(
            "--authentication-enabled without a way to prove a role: give --token-secret-key, "
            "--token-public-key, --basic-auth-conf, --openid-jwks-file or "
            "--authentication-providers tls"
        )
    proxies = _list(values, "--proxy-roles")
    if len(proxies) > PROXY_ROLES_MAX:
        raise RefusesToStart(f"--proxy-roles has more than {PROXY_ROLES_MAX} roles")
    anonymous = values["--anonymous-user-role"]
    return Authenticator(
        providers,
        anonymous_role=_role("--anonymous-user-role", anonymous) if anonymous else "",
        proxy_roles=frozenset(_role("--proxy-roles", role) for role in proxies),
        checks_original=values["--authenticate-original-auth-data"] == "true",
    )


def _provider_names(values: Mapping[str, str]) -> list[str]:
    named = _list(values, "--authentication-providers")
    if not named:
        return [
            name
            for name, settings in (
                ("token", ("--token-secret-key", "--token-public-key")),
                ("oidc", ("--openid-jwks-file",)),
                ("basic", ("--basic-auth-conf",)),
            )
            if any(values[setting] for setting in settings)
        ]
    names = []
    for name in named:
        ours = _PROVIDERS.get(name.rpartition(".")[2], name)
        if ours not in _PROVIDERS.values():
            raise RefusesToStart(f"--authentication-providers: {name!r} is not known here")
        names.append(ours)
    return list(dict.fromkeys(names))


def _token(values: Mapping[str, str]) -> AuthenticationProvider:
    settings: tuple[tuple[str, KeyLoader], ...] = (
        ("--token-secret-key", secret_key),
        ("--token-public-key", public_key),
    )
    given = [setting for setting in settings if values[setting[0]]]
    if len(given) != 1:
        raise RefusesToStart("tokens need one of --token-secret-key and --token-public-key")
    earlier: tuple[tuple[str, KeyLoader], ...] = (
        ("--token-previous-secret-key", secret_key),
        ("--token-previous-public-key", public_key),
    )
    given += [setting for setting in earlier if values[setting[0]]]
    keys = token_keys([(name, values[name], load) for name, load in given])
    audience = values["--token-audience"]
    rules = TokenRules(
        values["--token-auth-claim"],
        values["--token-audience-claim"],
        (audience,) if audience else (),
        int(values["--token-allowed-clock-skew-seconds"]),
    )
    return TokenProvider(keys, rules)


def _basic(values: Mapping[str, str]) -> AuthenticationProvider:
    name = "--basic-auth-conf"
    if not values[name]:
        raise RefusesToStart(f"passwords need {name}")
    return BasicProvider(ReloadedKey(name, values[name], lambda data: parsed_users(name, data)))


def _tls(_values: Mapping[str, str]) -> AuthenticationProvider:
    return CertificateProvider()


def _oidc(values: Mapping[str, str]) -> AuthenticationProvider:
    name = "--openid-jwks-file"
    issuers = frozenset(_list(values, "--openid-allowed-token-issuers"))
    if not values[name] or not issuers:
        raise RefusesToStart(
            f"tokens of an OpenID provider need {name} and --openid-allowed-token-issuers"
        )
    rules = TokenRules(
        values["--openid-role-claim"],
        audiences=_list(values, "--openid-allowed-audiences"),
        leeway_s=int(values["--token-allowed-clock-skew-seconds"]),
    )
    keys = ReloadedKey(name, values[name], lambda data: parsed_keys(name, data))
    return JwksProvider(keys, issuers, rules)


def _role(name: str, role: str) -> str:
    try:
        return checked_role(role)
    except Unauthenticated as error:
        raise RefusesToStart(f"{name}: {error}") from error


def _list(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in values[name].split(",") if part.strip())
