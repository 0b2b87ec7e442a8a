"""The guards that keep topics with the brokers that have their messages."""

from __future__ import annotations

from shards.domain import namespace
from shards.domain.placement import broker_kinds, rebalance, rules
from shards.inventory import topic_bounds
from tests.simulation.mutants.mutant import Edit, Mutant

_RULES = ("tests/unit/shards/domain/placement/test_rules.py",)
_REBALANCE = ("tests/unit/shards/domain/placement/test_rebalance.py",)
_DOMAIN = ("tests/unit/shards/domain/test_broker_kinds.py",)
_USE = ("tests/unit/shards/inventory/test_topic_use.py",)

MUTANTS = (
    Mutant(
        "places-topics-on-any-kind",
        "PL10",
        "a topic is placed on brokers of its kind only",
        (Edit(rules, "allowed_places", " if one.kind == kind", ""),),
        _RULES,
    ),
    Mutant(
        "moves-topics-to-any-kind",
        "PL10",
        "a broker of another kind is not taken though it is asked for",
        (Edit(rules, "forbids", "candidate.kind != kind", "False"),),
        _RULES,
    ),
    Mutant(
        "evens-out-across-kinds",
        "PL10",
        "no unit is planned to go to another kind",
        (Edit(rebalance.Planner, "_pairs", "taker.burden.kind != giver.burden.kind", "False"),),
        _REBALANCE,
    ),
    Mutant(
        "changes-the-kind-of-a-namespace",
        "PL11",
        "the kind of a namespace is what it was created for",
        (Edit(namespace, "decide", "if refusal is not None", "if False"),),
        _DOMAIN,
    ),
    Mutant(
        "renames-topics-to-any-kind",
        "PL11",
        "a topic is renamed into namespaces of its kind only",
        (Edit(broker_kinds, "check_renamed_kind", "kind == new_kind", "True"),),
        _DOMAIN,
    ),
    Mutant(
        "creates-topics-for-the-namespace-before",
        "PL11",
        "the kind is that of the namespace which exists now",
        (Edit(topic_bounds, "kind_for", "served.namespace_id != namespace_id", "False"),),
        _USE,
    ),
)
