"""Identities in certificates: what is one, and what is none."""

from __future__ import annotations

import pytest

from nextgen.runtime.security.node_identity import (
    NodeIdentity,
    NodeRole,
    identity_of,
    parse_identity,
    role_name,
)

NODE = NodeIdentity("blue", NodeRole.SHARD_NODE, "shard-node-1")


@pytest.mark.parametrize("role", NodeRole)
def test_an_identity_is_read_as_it_was_written(role: NodeRole):
    identity = NodeIdentity("blue.eu", role, "n_1")

    assert parse_identity(identity.uri) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "https://blue/broker/b",
        "pulsar-nextgen://blue/king/b",
        "pulsar-nextgen://blue/broker/",
        "pulsar-nextgen://blue/broker",
        "pulsar-nextgen:///broker/b",
        "pulsar-nextgen://blue/broker/b/c",
        "pulsar-nextgen://blue/broker/b?x=1",
        "pulsar-nextgen://blue/broker/b#x",
        "pulsar-nextgen://user@blue/broker/b",
        "pulsar-nextgen://[/broker/b",
        f"pulsar-nextgen://blue/broker/{'b' * 129}",
    ],
)
def test_anything_else_is_no_identity(uri: str):
    assert parse_identity(uri) is None


def test_a_certificate_with_two_identities_has_none():
    other = NodeIdentity("blue", NodeRole.CLUSTER_MANAGER, "m")

    assert identity_of(["https://a", NODE.uri]) == NODE
    assert identity_of([NODE.uri, other.uri]) is None


def test_processes_have_the_names_that_callers_require_and_operators_have_none():
    assert NODE.dns_names == (
        role_name("blue", NodeRole.SHARD_NODE),
        role_name("blue", None),
    )
    assert NodeIdentity("blue", NodeRole.OPERATOR, "me").dns_names == ()
