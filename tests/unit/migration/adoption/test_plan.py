"""What hinders an adoption, and what it would create."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextgen.kernel.routing.names import parse_namespace
from nextgen.migration.adoption.plan import (
    CLAIMED_PER_SECOND,
    CREATED_PER_SECOND,
    Facts,
    OwnNamespace,
    PulsarNamespace,
    StockBroker,
    hindrances,
    make_plan,
)

EU, US = "persistent://acme/orders/eu", "persistent://acme/orders/us"
IN_PULSAR = PulsarNamespace({}, ("standalone",), is_deleted=False, topics={EU: 4, US: 0})
ABSENT = OwnNamespace(has_tenant=False, exists=False, is_deleting=False)
FIRST = StockBroker("stock-1", "b1:8080", "5.0.0-M1", 50_000, open_topics=3)
SECOND = StockBroker("stock-2", "b2:8080", "5.0.0-M1", 50_000, open_topics=2)
FACTS = Facts(
    namespace=parse_namespace("acme/orders"),
    in_pulsar=IN_PULSAR,
    here=ABSENT,
    pulsar_brokers=("b1:8080", "b2:8080"),
    stock_brokers=(FIRST, SECOND),
    settings={"transactionCoordinatorEnabled": "false", "bootstrapNamespaces": "[]"},
)


def kinds(facts: Facts) -> list[tuple[str, bool]]:
    return [(each.kind, each.is_untried) for each in hindrances(facts)]


def in_pulsar(**changes: object) -> Facts:
    return replace(FACTS, in_pulsar=replace(IN_PULSAR, **changes))  # type: ignore[arg-type]


def test_a_namespace_that_is_not_here_is_created_with_all_its_topics() -> None:
    plan = make_plan(FACTS)

    assert plan.hindrances == ()
    assert (plan.is_adopted, plan.creates_tenant, plan.creates_namespace) == (False, True, True)
    assert plan.creates_topics == {EU: 4, US: 0}
    assert plan.open_topics == 5


def test_what_is_here_is_not_created_again() -> None:
    here = OwnNamespace(has_tenant=True, exists=True, is_deleting=False, topics={EU: 4})

    plan = make_plan(replace(FACTS, here=here))

    assert (plan.creates_tenant, plan.creates_namespace) == (False, False)
    assert plan.creates_topics == {US: 0}
    assert plan.present_topics == 1


def test_a_namespace_that_embedded_brokers_serve_is_not_handed_over() -> None:
    here = OwnNamespace(has_tenant=True, exists=True, is_deleting=False, is_embedded=True)

    assert kinds(replace(FACTS, here=here)) == [("embedded", False)]


def test_topics_with_partitions_that_only_pulsar_has_are_named_behind_a_handover() -> None:
    """A lookup creates the one without."""
    adopted = in_pulsar(properties={"nextgen.placement": "topic"})
    here = OwnNamespace(has_tenant=True, exists=True, is_deleting=False, topics={EU: 4})

    assert make_plan(FACTS).remarks == ()
    assert make_plan(replace(adopted, here=here)).remarks == ()
    (remark,) = make_plan(adopted).remarks
    assert remark.startswith(f"{EU} has 4 partitions and is served by no broker until ")
    assert make_plan(adopted).as_dict()["remarks"] == [remark]


@pytest.mark.parametrize(
    ("of_namespace", "of_brokers", "is_remarked"),
    [
        (None, "non-partitioned", False),
        (None, "partitioned", True),
        (False, "partitioned", False),
        (True, "non-partitioned", True),
    ],
)
def test_topics_that_will_get_partitions_by_themselves_are_remarked(
    of_namespace: bool | None, of_brokers: str, is_remarked: bool
) -> None:
    facts = replace(
        in_pulsar(creates_partitioned=of_namespace),
        settings={"allowAutoTopicCreationType": of_brokers},
    )

    plan = make_plan(facts)

    assert plan.hindrances == ()
    assert [each.startswith("Pulsar gives partitions") for each in plan.remarks] == (
        [True] * is_remarked
    )


@pytest.mark.parametrize(
    ("here", "remedy"),
    [
        (2, f"'nextgen topics grow {EU} 4'"),
        (5, f"'nextgen topics delete {EU} --force'"),
        (0, f"'nextgen topics delete {EU} --force'"),
    ],
)
def test_another_number_of_partitions_is_named_with_its_remedy(here: int, remedy: str) -> None:
    (found,) = hindrances(replace(FACTS, here=replace(ABSENT, topics={EU: here})))

    assert f"{EU} has 4 partitions in Pulsar and {here} here: " in found.sentence
    assert remedy in found.sentence


def test_a_namespace_with_the_property_is_adopted() -> None:
    assert make_plan(in_pulsar(properties={"nextgen.placement": "topic"})).is_adopted
    assert not make_plan(in_pulsar(properties={"nextgen.placement": "bundle"})).is_adopted


def test_the_time_grows_with_what_is_created_and_what_is_open() -> None:
    topics = {f"{EU}-{number}": 0 for number in range(10_000)}
    brokers = (replace(FIRST, open_topics=10_000),)

    plan = make_plan(replace(in_pulsar(topics=topics), stock_brokers=brokers))

    assert plan.seconds == 10_000 / CREATED_PER_SECOND + 10_000 / CLAIMED_PER_SECOND


@pytest.mark.parametrize(
    ("facts", "kind", "is_untried"),
    [
        (replace(FACTS, in_pulsar=None), "absent", False),
        (replace(FACTS, namespace=parse_namespace("pulsar/system")), "system", False),
        (replace(FACTS, namespace=parse_namespace("public/functions")), "system", False),
        (
            replace(FACTS, settings={"bootstrapNamespaces": "[a/b, acme/orders]"}),
            "bootstrap",
            False,
        ),
        (replace(FACTS, settings={"bootstrapNamespaces": "acme/orders"}), "bootstrap", False),
        (in_pulsar(is_deleted=True), "deleting", False),
        (replace(FACTS, here=replace(ABSENT, is_deleting=True)), "deleting", False),
        (replace(FACTS, stock_brokers=(FIRST,)), "no_sidecar", False),
        (replace(FACTS, pulsar_brokers=()), "no_broker", False),
        (
            replace(FACTS, stock_brokers=(replace(FIRST, capacity_units=2), SECOND)),
            "capacity",
            False,
        ),
        (in_pulsar(refused_names=(f"{EU}: no such name",)), "name", False),
        (replace(FACTS, here=replace(ABSENT, topics={EU: 5})), "partitions", False),
        (replace(FACTS, here=replace(ABSENT, topics={US: 1})), "partitions", False),
        (replace(FACTS, settings={"transactionCoordinatorEnabled": "true"}), "transactions", True),
        (replace(FACTS, settings=None), "settings", True),
        (in_pulsar(replication_clusters=("east", "west")), "replication", True),
        (
            replace(FACTS, stock_brokers=(FIRST, replace(SECOND, pulsar_version="5.0.1"))),
            "versions",
            True,
        ),
    ],
)
def test_each_hindrance_is_found_alone(facts: Facts, kind: str, is_untried: bool) -> None:
    assert kinds(facts) == [(kind, is_untried)]


@pytest.mark.parametrize("settings", ["[other/orders]", "acme/orders2", "", "[]"])
def test_other_bootstrap_namespaces_hinder_nothing(settings: str) -> None:
    assert kinds(replace(FACTS, settings={"bootstrapNamespaces": settings})) == []


def test_as_many_open_topics_as_units_are_no_hindrance() -> None:
    broker = replace(FIRST, capacity_units=FIRST.open_topics)

    assert kinds(replace(FACTS, stock_brokers=(broker, SECOND))) == []


def test_a_sidecar_whose_broker_pulsar_does_not_name_hinders_nothing() -> None:
    assert kinds(replace(FACTS, pulsar_brokers=("b1:8080",))) == []


def test_what_is_untried_may_be_allowed_and_nothing_else() -> None:
    plan = make_plan(
        replace(
            in_pulsar(replication_clusters=("east", "west")),
            here=replace(ABSENT, topics={EU: 5}),
        )
    )

    assert [each.kind for each in plan.blockers(allow_untried=False)] == [
        "partitions",
        "replication",
    ]
    assert [each.kind for each in plan.blockers(allow_untried=True)] == ["partitions"]


def test_a_plan_is_shown_as_json() -> None:
    shown = make_plan(in_pulsar(replication_clusters=("east", "west"))).as_dict()

    assert shown["creates"] == {"tenant": True, "namespace": True, "topics": 2, "partitions": 4}
    assert shown["brokers"]["stock-2"] == {"broker": "b2:8080", "open_topics": 2}
    (hindrance,) = shown["hindrances"]
    assert (hindrance["kind"], hindrance["untried"]) == ("replication", True)
