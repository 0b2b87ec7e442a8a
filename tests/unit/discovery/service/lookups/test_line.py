"""Whose names a shard is asked for next."""

from __future__ import annotations

from dataclasses import dataclass

from discovery.service.lookups.line import LookupLine
from nextgen.kernel.limits.cluster import (
    LOOKUP_BATCHES_IN_FLIGHT_MAX,
    LOOKUP_NAMES_IN_FLIGHT_MAX,
    LOOKUP_QUEUE_MS_MAX,
)
from nextgen.kernel.limits.discovery import (
    LOOKUP_BATCHES_RESERVED,
    LOOKUP_NAMES_RESERVED,
    LOOKUP_TENANT_NAMES_SHARED_MAX,
)
from nextgen.kernel.routing.names import tenant_in


@dataclass(frozen=True)
class Name:
    topic: str
    tenant: str
    since: float = 0.0


def names(tenant: str, count: int, first: int = 0) -> list[Name]:
    return [Name(f"{tenant}-{number}", tenant) for number in range(first, first + count)]


def line_of(*tenants: list[Name]) -> LookupLine[Name]:
    line: LookupLine[Name] = LookupLine()
    for each in tenants:
        for name in each:
            line.put(name)
    return line


def take(line: LookupLine[Name], now: float = 0.0) -> tuple[dict[str, int], bool]:
    """Return how many names of each tenant the next request has, and whether one has it alone."""
    taken, is_own = line.take(now)
    counts: dict[str, int] = {}
    for name in taken:
        counts[name.tenant] = counts.get(name.tenant, 0) + 1
    return counts, is_own


def test_few_names_of_many_tenants_share_a_request():
    line = line_of(names("a", 2), names("b", 1), names("c", 3))

    assert take(line) == ({"a": 2, "b": 1, "c": 3}, False)
    assert not line


def test_few_names_go_before_many_that_came_earlier():
    line = line_of(names("flood", 5_000), names("quiet", 1))

    assert take(line) == ({"quiet": 1}, False)


def test_many_names_share_no_request_with_others():
    line = line_of(names("flood", 500), names("other", 400))

    assert take(line) == ({"flood": 500}, True)
    assert take(line) == ({"other": LOOKUP_NAMES_IN_FLIGHT_MAX - LOOKUP_NAMES_RESERVED - 500}, True)


def test_tenants_with_many_names_have_requests_in_turn():
    first = LOOKUP_NAMES_IN_FLIGHT_MAX - LOOKUP_NAMES_RESERVED
    line = line_of(names("a", 2 * first), names("b", 2 * first))
    order = []
    for _ in range(4):
        taken, is_own = line.take(0.0)
        order.append(taken[0].tenant)
        line.names_done(taken)
        line.batch_done(is_own=is_own)

    assert order == ["a", "b", "a", "b"]


def test_a_flood_leaves_requests_and_names_to_others():
    line = line_of()
    for number in range(LOOKUP_BATCHES_IN_FLIGHT_MAX):
        for name in names("flood", 70, first=70 * number):
            line.put(name)
        take(line)
    assert line, "the flood has not all requests that may be under way"

    for number in range(LOOKUP_BATCHES_RESERVED):
        assert line.has_room
        line.put(Name(f"quiet-{number}", "quiet"))
        assert take(line) == ({"quiet": 1}, False)
    assert not line.has_room
    assert take(line) == ({}, False)


def test_lookup_tenant_names_shared_max_share_and_one_more_does_not():
    line = line_of(names("a", LOOKUP_TENANT_NAMES_SHARED_MAX))
    assert take(line) == ({"a": LOOKUP_TENANT_NAMES_SHARED_MAX}, False)

    line = line_of(names("a", LOOKUP_TENANT_NAMES_SHARED_MAX + 1))
    assert take(line) == ({"a": LOOKUP_TENANT_NAMES_SHARED_MAX + 1}, True)


def test_names_under_way_count_as_many_names_of_their_tenant():
    line = line_of(names("a", LOOKUP_TENANT_NAMES_SHARED_MAX))
    under_way, is_own = line.take(0.0)
    line.put(Name("a-more", "a"))
    assert take(line) == ({"a": 1}, True)

    line.names_done(under_way)
    line.batch_done(is_own=is_own)
    line.put(Name("a-later", "a"))
    assert take(line) == ({"a": 1}, False)


def test_the_latest_of_a_tenant_go_first_behind_its_own_line_that_stood_too_long():
    late = LOOKUP_QUEUE_MS_MAX / 1_000 + 0.001
    line = line_of([Name("a-1", "a", 0.0), Name("a-2", "a", late)])
    line.put(Name("b-1", "b", late))
    line.put(Name("b-2", "b", late))

    taken, _ = line.take(late)

    assert [name.topic for name in taken] == ["a-2", "a-1", "b-1", "b-2"]


def test_a_name_without_waiters_leaves_the_queue():
    line = line_of(names("a", 2))
    assert line.oldest.topic == "a-0"

    line.discard(line.oldest)

    assert line.oldest.topic == "a-1"
    assert take(line) == ({"a": 1}, False)
    assert not line


def test_the_tenant_of_a_name():
    assert tenant_in("persistent://acme/orders/paid") == "acme"
    assert tenant_in("no name") == ""
