"""The demo's names."""

from __future__ import annotations

from nextgen.harness.demo import names
from nextgen.kernel.routing.names import parse_namespace, parse_tenant, parse_topic


def test_there_are_enough_different_topics_and_all_are_canonical():
    topics = names.topics(20_000)

    assert len(set(topics)) == 20_000
    assert all(parse_topic(name).text == name for name in topics)


def test_the_same_seed_gives_the_same_topics():
    assert names.topics(500, seed=3) == names.topics(500, seed=3)
    assert names.topics(500, seed=3) != names.topics(500, seed=4)


def test_every_topic_has_its_namespace_and_every_namespace_its_tenant():
    namespaces = set(names.namespaces())

    assert {parse_topic(name).namespace_text for name in names.topics(5_000)} <= namespaces
    assert {parse_namespace(name).tenant for name in namespaces} == set(names.tenants())
    assert [parse_tenant(name) for name in names.tenants()] == names.tenants()
