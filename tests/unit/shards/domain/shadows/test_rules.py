"""What may be a shadow, by its name and that of its source."""

from __future__ import annotations

import pytest

from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from shards.domain.shadows.rules import canonical_properties, check_shadow

SHADOW = "persistent://acme/orders/shadow"
SOURCE = "persistent://acme/orders/source"


def refusal_of(name: str, source: str) -> RejectionCode | None:
    refused = check_shadow(parse_topic(name), ((SHADOW_SOURCE_PROPERTY, source),))
    return refused.code if refused is not None else None


def test_a_topic_without_the_property_may_have_any_name() -> None:
    for properties in ((), (("owner", "me"),)):
        assert check_shadow(parse_topic("topic://a/b/c"), properties) is None


@pytest.mark.parametrize(
    "source", [SOURCE, "acme/orders/source", "PERSISTENT://acme/orders/source"]
)
def test_a_persistent_topic_may_be_a_shadow_of_another(source: str) -> None:
    assert refusal_of(SHADOW, source) is None
    properties = canonical_properties({"owner": "me", SHADOW_SOURCE_PROPERTY: source})
    assert properties == {"owner": "me", SHADOW_SOURCE_PROPERTY: SOURCE}


@pytest.mark.parametrize(
    ("name", "source", "code"),
    [
        (SHADOW, "", RejectionCode.INVALID_NAME),
        (SHADOW, "a/b", RejectionCode.INVALID_NAME),
        (SHADOW, SHADOW, RejectionCode.INVALID_NAME),
        (SHADOW, "acme/orders/shadow", RejectionCode.INVALID_NAME),
        (SHADOW, f"{SOURCE}-partition-0", RejectionCode.INVALID_NAME),
        (SHADOW, SOURCE.replace("persistent", "non-persistent"), RejectionCode.INVALID_NAME),
        (SHADOW, SOURCE.replace("persistent", "topic"), RejectionCode.SCALABLE),
        ("non-persistent://a/b/c", SOURCE, RejectionCode.INVALID_NAME),
        ("topic://a/b/c", SOURCE, RejectionCode.INVALID_NAME),
    ],
)
def test_other_shadows_are_refused(name: str, source: str, code: RejectionCode) -> None:
    assert refusal_of(name, source) is code


def test_properties_without_a_source_stay_as_they_are() -> None:
    assert canonical_properties({"owner": "me"}) == {"owner": "me"}
