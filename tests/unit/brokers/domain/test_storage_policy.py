"""What counts for a topic, and where a backlog is cut."""

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.position import Position
from brokers.domain.storage_policy import (
    NO_BOUND,
    StoragePolicy,
    effective,
    entries_kept_at_eviction,
    position_before_newest,
)
from nextgen.kernel.governance.policies import (
    FOR_EVER,
    NO_POLICIES,
    BacklogAction,
    BacklogQuota,
    Policies,
    Retention,
    SchemaCompatibility,
)

OWN = StoragePolicy(retention_ms=1_000, retention_bytes=2_000, backlog_bytes_max=3_000)


def test_where_nobody_says_anything_the_brokers_own_counts():
    assert effective(NO_POLICIES, OWN) == OWN


def test_what_is_said_counts_field_by_field():
    said = Policies(
        retention=Retention(size_bytes=FOR_EVER),
        message_ttl_ms=5,
        backlog_quota=BacklogQuota(action=BacklogAction.PRODUCER_REQUEST_HOLD),
        deduplication=False,
        schema_compatibility=SchemaCompatibility.FORWARD,
        schema_auto_update=False,
    )

    assert effective(said, OWN) == StoragePolicy(
        retention_ms=1_000,
        retention_bytes=FOR_EVER,
        backlog_bytes_max=3_000,
        backlog_action=BacklogAction.PRODUCER_REQUEST_HOLD,
        message_ttl_ms=5,
        deduplicates=False,
        schema_compatibility=SchemaCompatibility.FORWARD,
        accepts_schemas=False,
    )


def test_nothing_at_all_may_be_said():
    said = Policies(
        retention=Retention(0, 0), message_ttl_ms=0, backlog_quota=BacklogQuota(size_bytes=0)
    )

    counts = effective(said, OWN)

    assert (counts.retention_ms, counts.retention_bytes) == (0, 0)
    assert counts.message_ttl_ms == NO_BOUND
    assert counts.allows_backlog(2**62)


def test_a_backlog_may_be_as_large_as_its_quota_and_no_larger():
    assert OWN.allows_backlog(3_000)
    assert not OWN.allows_backlog(3_001)


def test_a_backlog_that_is_cut_keeps_nine_tenths_of_its_quota():
    assert entries_kept_at_eviction(OWN, entry_count=100, byte_count=10_000) == 27
    assert entries_kept_at_eviction(OWN, entry_count=1, byte_count=10_000) == 0


@given(
    ledgers=st.dictionaries(st.integers(0, 2**30), st.integers(1, 5), min_size=1, max_size=5),
    dropped=st.integers(0, 4),
    count=st.integers(0, 30),
)
def test_at_most_so_many_of_the_newest_entries_are_behind_the_lowest_such_position(
    ledgers: dict[int, int], dropped: int, count: int
):
    entries = [
        Position(ledger, entry) for ledger in sorted(ledgers) for entry in range(ledgers[ledger])
    ]
    entries = entries[min(dropped, len(entries) - 1) :]

    def between(after: Position, up_to: Position) -> int:
        return max(0, bisect_right(entries, up_to) - bisect_right(entries, after))

    found = position_before_newest(count, entries[0], entries[-1], between)

    kept = [entry for entry in entries if entry > found]
    assert kept == entries[max(0, len(entries) - count) :]
