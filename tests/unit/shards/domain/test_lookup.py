"""Whether a name can be served at all."""

from __future__ import annotations

import pytest

from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import parse_topic
from shards.domain.lookup import check_served
from shards.domain.topic import Topic

BASE = "persistent://acme/orders/paid"


def topic(partitions: int) -> Topic:
    return Topic("id", BASE, partitions, 1, "namespace id", 0, ())


@pytest.mark.parametrize(
    ("name", "found", "code"),
    [
        (BASE, None, RejectionCode.NOT_FOUND),
        (f"{BASE}-partition-0", None, RejectionCode.NOT_FOUND),
        (BASE, topic(0), None),
        (BASE, topic(3), RejectionCode.PARTITIONED),
        (f"{BASE}-partition-0", topic(3), None),
        (f"{BASE}-partition-2", topic(3), None),
        (f"{BASE}-partition-3", topic(3), RejectionCode.NOT_FOUND),
        (f"{BASE}-partition-0", topic(0), RejectionCode.NOT_FOUND),
    ],
)
def test_every_combination_of_name_and_topic(
    name: str, found: Topic | None, code: RejectionCode | None
) -> None:
    refusal = check_served(parse_topic(name), found)

    assert (refusal.code if refusal is not None else None) == code
