"""Which topic is a shadow."""

from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY, shadow_source_of


def test_topic_with_the_property_is_a_shadow_of_the_named_source():
    properties = {"owner": "sales", "PULSAR.SHADOW_SOURCE": "persistent://acme/orders/eu"}

    assert shadow_source_of(properties) == "persistent://acme/orders/eu"


def test_topic_without_the_property_is_no_shadow():
    assert shadow_source_of({"owner": "sales"}) == ""


def test_property_has_the_name_that_pulsars_clients_use():
    assert SHADOW_SOURCE_PROPERTY == "PULSAR.SHADOW_SOURCE"
