"""The new name of a topic as a request has it, and what its client needs."""

import pytest

from discovery.domain.topic_rename import needs_of_rename, parse_new_name
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.routing.names import InvalidName, parse_topic

PAID = "persistent://acme/orders/paid"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (PAID, "done", "persistent://acme/orders/done"),
        (PAID, "acme/archive/paid", "persistent://acme/archive/paid"),
        (PAID, "non-persistent://a/b/c", "non-persistent://a/b/c"),
        ("non-persistent://acme/orders/paid", "done", "non-persistent://acme/orders/done"),
        ("non-persistent://acme/orders/paid", "a/b/c", "non-persistent://a/b/c"),
        ("paid", "done", "persistent://public/default/done"),
    ],
)
def test_what_a_new_name_leaves_out_is_as_it_is(name, text, expected):
    assert parse_new_name(parse_topic(name), text).text == expected


@pytest.mark.parametrize("text", ["", "a/b", "ftp://a/b/c", "a//c", "/", "x\x00"])
def test_a_new_name_that_is_none_is_refused(text):
    with pytest.raises(InvalidName):
        parse_new_name(parse_topic(PAID), text)


def test_the_caller_administers_both_tenants():
    assert needs_of_rename(PAID, "other/archive/paid") == [
        (Action.DELETE, Resource.topic(PAID)),
        (Action.CREATE, Resource.topic("persistent://other/archive/paid")),
    ]
    with pytest.raises(InvalidName):
        needs_of_rename("a//b", "x")
