"""Former names of topics, and whose they are."""

from __future__ import annotations

from brokers.domain.former_names import FormerNames, OldName

ORDERS = "persistent://acme/shop/orders"
SALES = "persistent://acme/shop/sales"


def test_a_former_name_leads_to_its_topic_until_its_time_is_over():
    names = FormerNames()
    names.add("id-1", [OldName(ORDERS, 1_000), OldName(SALES, 2_000)])

    assert [names.topic_id(ORDERS, now) for now in (999, 1_000)] == ["id-1", ""]
    assert names.topic_id(SALES, 1_000) == "id-1"
    assert names.topic_id("persistent://acme/shop/none", 0) == ""


def test_dropped_names_lead_nowhere():
    names = FormerNames()
    names.add("id-1", [OldName(ORDERS, 1_000), OldName(SALES, 2_000)])

    names.drop("id-1", [OldName(ORDERS, 1_000)])

    assert (names.topic_id(ORDERS, 0), names.topic_id(SALES, 0)) == ("", "id-1")
    names.drop("id-1", [OldName(SALES, 2_000)])
    assert not names


def test_a_name_that_two_topics_had_is_of_the_later_one_in_any_order():
    first, later = ("id-1", OldName(ORDERS, 1_000)), ("id-2", OldName(ORDERS, 5_000))
    for order in ((first, later), (later, first)):
        names = FormerNames()
        for topic_id, name in order:
            names.add(topic_id, [name])
        names.drop("id-1", [first[1]])

        assert names.topic_id(ORDERS, 0) == "id-2"
