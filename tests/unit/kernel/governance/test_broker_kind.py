"""Which kind of brokers has the messages of a namespace."""

from __future__ import annotations

import pytest

from nextgen.kernel.governance.broker_kind import (
    BROKER_KIND_PROPERTY,
    KINDS,
    BrokerKind,
    broker_kind_of,
    shown_kind,
)


def test_without_the_property_brokers_are_embedded() -> None:
    assert broker_kind_of({"team": "a"}) is BrokerKind.EMBEDDED


def test_the_property_names_the_kind() -> None:
    assert broker_kind_of({BROKER_KIND_PROPERTY: "stock"}) is BrokerKind.STOCK


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_a_name_that_can_be_read(kind: BrokerKind) -> None:
    assert shown_kind(kind) in ("embedded", "stock")
