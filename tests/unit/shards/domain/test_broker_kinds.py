"""A namespace is served by one kind of brokers for its life, and so is each of its topics."""

from __future__ import annotations

import pytest

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.governance.broker_kind import BROKER_KIND_PROPERTY
from nextgen.kernel.limits.cluster import PROPERTIES_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from shards.domain import namespace, topic
from shards.domain.life import Life
from shards.domain.namespace import CreateNamespace, Namespace
from shards.domain.parent import SetProperties
from shards.domain.placement.broker_kinds import with_broker_kind
from shards.domain.properties import Properties
from shards.domain.topic import CreateTopic, RenameTopic, SetTopicProperties, Topic, TopicCreated

STOCK: Properties = ((BROKER_KIND_PROPERTY, "stock"),)
TEAM: Properties = (("team", "a"),)
NAME = "persistent://acme/orders/paid"


def create(properties: Properties = (), kind: str = "stock", name: str = NAME) -> CreateTopic:
    return CreateTopic("t-1", parse_topic(name), "ns-1", 1_000, 0, properties, kind)


def existing(properties: Properties) -> Topic:
    return Topic("t-1", NAME, 0, 1, "ns-1", 1_000, properties)


def refusal(decision: Accepted[object] | Rejected) -> str:
    assert isinstance(decision, Rejected), decision
    assert decision.code is RejectionCode.NOT_ALLOWED
    return decision.message


def test_a_namespace_is_created_for_stock_brokers() -> None:
    decision = namespace.decide(None, CreateNamespace("ns-1", "acme/orders", "te-1", STOCK))

    assert isinstance(decision, Accepted)
    assert decision.events[0] == namespace.NamespaceCreated("ns-1", "acme/orders", "te-1", STOCK)


@pytest.mark.parametrize("kind", ["", "Stock", "embedded", "x" * 10_000])
def test_a_namespace_for_brokers_of_no_known_kind_is_refused(kind: str) -> None:
    properties = ((BROKER_KIND_PROPERTY, kind),)

    why = refusal(namespace.decide(None, CreateNamespace("n", "acme/orders", "te", properties)))

    assert "it may be 'stock', or absent for embedded brokers" in why
    assert len(why) < 300


@pytest.mark.parametrize(
    ("present", "wanted"),
    [(STOCK, ()), (STOCK, ((BROKER_KIND_PROPERTY, "other"),)), ((), STOCK), (TEAM, STOCK)],
)
def test_neither_a_namespace_nor_a_topic_changes_its_kind_of_brokers(
    present: Properties, wanted: Properties
) -> None:
    """What was stored stays where the brokers of the former kind have it."""
    state = Namespace("ns-1", "acme/orders", "te-1", present, 1, Life.ACTIVE)

    for why in (
        refusal(namespace.decide(state, SetProperties("acme/orders", wanted))),
        refusal(topic.decide(existing(present), SetTopicProperties(NAME, wanted))),
    ):
        assert "is given when it is created and never changed" in why


def test_other_properties_beside_the_kind_are_set() -> None:
    both = tuple(sorted((*STOCK, *TEAM)))
    state = Namespace("ns-1", "acme/orders", "te-1", STOCK, 1, Life.ACTIVE)

    assert isinstance(namespace.decide(state, SetProperties("acme/orders", both)), Accepted)
    assert isinstance(topic.decide(existing(STOCK), SetTopicProperties(NAME, both)), Accepted)


def test_a_topic_has_the_kind_of_its_namespace() -> None:
    decision = topic.decide(None, create(TEAM))

    both = tuple(sorted((*STOCK, *TEAM)))
    assert decision == Accepted((TopicCreated("t-1", NAME, 0, "ns-1", 1_000, both),))
    assert existing(both).broker_kind == "stock"
    assert existing(TEAM).broker_kind == ""


def test_a_topic_with_all_the_properties_that_are_allowed_has_a_kind_besides() -> None:
    full = tuple((f"{number:04}", "") for number in range(PROPERTIES_MAX))

    assert isinstance(topic.decide(None, create(full)), Accepted)


def test_a_topic_that_names_the_kind_of_its_namespace_is_as_one_that_does_not() -> None:
    assert topic.decide(None, create(STOCK)) == topic.decide(None, create())


def test_a_topic_cannot_have_another_kind_than_its_namespace() -> None:
    why = refusal(topic.decide(None, create(STOCK, kind="")))

    assert "its namespace is served by embedded brokers" in why


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (create(name="topic://acme/orders/paid"), "scalable topics are"),
        (create(((SHADOW_SOURCE_PROPERTY, "persistent://acme/a/b"),)), "shadows are"),
    ],
)
def test_what_only_embedded_brokers_serve_is_refused_beside_stock_ones(
    command: CreateTopic, what: str
) -> None:
    assert what in refusal(topic.decide(None, command))


@pytest.mark.parametrize(("has", "gets"), [(STOCK, ""), ((), "stock")])
def test_a_topic_is_not_renamed_into_a_namespace_of_other_brokers(
    has: Properties, gets: str
) -> None:
    new_name = parse_topic("persistent://acme/others/paid")
    order = RenameTopic(parse_topic(NAME), "t-1", new_name, "ns-2", 2_000, 1_000, gets)

    assert "is served by" in refusal(topic.decide(existing(has), order))


def test_a_topic_is_renamed_into_a_namespace_of_the_same_brokers() -> None:
    new_name = parse_topic("persistent://acme/others/paid")
    order = RenameTopic(parse_topic(NAME), "t-1", new_name, "ns-2", 2_000, 1_000, "stock")

    assert isinstance(topic.decide(existing(STOCK), order), Accepted)


def test_a_kind_replaces_another_and_leaves_the_rest() -> None:
    assert with_broker_kind(tuple(sorted((*STOCK, *TEAM))), "") == TEAM
    assert with_broker_kind(TEAM, "") == TEAM
    assert with_broker_kind((), "stock") == STOCK
