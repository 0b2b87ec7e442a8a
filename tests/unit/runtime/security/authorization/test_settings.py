"""The settings of authorisation, in the processes that have them."""

import pytest

from brokers.config import parse_config as parse_broker
from discovery.adapters.workers.arguments import worker_arguments
from discovery.config import parse_config as parse_discovery
from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.governance.access_rules import AccessRules
from nextgen.kernel.limits.inbound import ROLE_BYTES_MAX, SUPERUSERS_MAX

NODE = [
    *("--node-id", "n-1", "--cluster-id", "c", "--cluster-managers", "a:1"),
    *("--listen", "127.0.0.1:7080", "--http-listen", "127.0.0.1:7081"),
]
AUTHENTICATED = ["--authentication-enabled", "true", "--token-secret-key", "x"]
ON = [*AUTHENTICATED, "--authorization-enabled", "true"]
TLS = ["--tls-cert-file", "c", "--tls-key-file", "k", "--tls-ca-file", "a"]
PARSERS = pytest.mark.parametrize("parse", [parse_discovery, parse_broker])


@PARSERS
def test_without_settings_every_client_may_do_everything(parse):
    assert parse(NODE, {}).authorization.rules is None


@PARSERS
@pytest.mark.parametrize(
    "flags",
    [
        ["--super-user-roles", "root, ops", "--authorization-allow-wildcards-matching", "true"],
        ["--superUserRoles", "ops,root", "--authorizationAllowWildcardsMatching", "true"],
    ],
)
def test_superusers_and_wildcards_are_set_by_our_names_and_by_pulsars(parse, flags):
    rules = parse([*NODE, *ON, *flags], {}).authorization.rules
    assert rules == AccessRules(frozenset({"root", "ops"}), wildcards=True)


@PARSERS
def test_who_proves_no_role_has_no_permissions(parse):
    with pytest.raises(RefusesToStart, match="without --authentication-enabled true"):
        parse([*NODE, "--authorization-enabled", "true"], {})


@PARSERS
@pytest.mark.parametrize(
    ("flags", "mistake"),
    [
        (["--authorization-enabled", "yes"], "must be true or false"),
        (["--authorization-allow-wildcards-matching", "1"], "must be true or false"),
        (["--super-user-roles", "a\x07b"], "--super-user-roles: the role has control characters"),
        (["--super-user-roles", "a" * (ROLE_BYTES_MAX + 1)], "more than 256 bytes"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(parse, flags, mistake):
    with pytest.raises(RefusesToStart, match=mistake):
        parse([*NODE, *AUTHENTICATED, *flags], {})


@PARSERS
def test_superusers_max(parse):
    roles = [f"r{number}" for number in range(SUPERUSERS_MAX + 1)]
    some = parse([*NODE, *ON, "--super-user-roles", ",".join(roles[1:])], {})
    assert len(some.authorization.rules.superusers) == SUPERUSERS_MAX
    with pytest.raises(RefusesToStart, match=f"more than {SUPERUSERS_MAX} roles"):
        parse([*NODE, *ON, "--super-user-roles", ",".join(roles)], {})


@PARSERS
@pytest.mark.parametrize("name", ["--listen", "--http-listen"])
def test_beyond_this_machine_clients_need_permissions(parse, name):
    exposed = [*NODE, *TLS, name, "10.0.0.1:7080"]
    for missing in ([], AUTHENTICATED):
        with pytest.raises(RefusesToStart, match=rf"{name} .* is beyond this machine, and"):
            parse([*exposed, *missing], {})
        assert parse([*exposed, *missing, "--insecure", "true"], {}).authorization.rules is None
    assert parse([*exposed, *ON], {}).authorization.rules == AccessRules()


@pytest.mark.parametrize("name", ["--pulsar-tls-listen", "--client-listen"])
def test_beyond_this_machine_clients_of_discovery_need_permissions(name):
    exposed = [*NODE, *TLS, name, "10.0.0.1:6651"]
    with pytest.raises(RefusesToStart, match=rf"{name} .* is beyond this"):
        parse_discovery([*exposed, *AUTHENTICATED], {})
    parse_discovery([*exposed, *ON], {})


def test_a_worker_has_the_rules_of_the_process_that_starts_it():
    config = parse_discovery(
        [
            *NODE,
            *ON,
            *("--super-user-roles", "root,ops", "--pulsar-listen", "127.0.0.1:6650"),
            *("--authorization-allow-wildcards-matching", "true"),
        ],
        {},
    )
    flags = [part.format(number=2) for part in worker_arguments(config, pulsar_port=6650)]
    assert parse_discovery(flags, {}).authorization == config.authorization
