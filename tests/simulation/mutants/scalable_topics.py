"""The guards of scalable topics: dispatch by entry buckets, and who consumes which segments."""

from __future__ import annotations

from brokers.domain.subscriptions.entry_buckets import EntryBuckets
from brokers.service import entry_metadata
from brokers.service.subscriptions.dispatch.key_shared import KeySharedDispatcher
from shards.domain.scalable import distribution, groups
from shards.domain.scalable.distribution import Layout
from tests.simulation.mutants.mutant import Edit, Mutant

_BUCKETS = ("tests/unit/brokers/service/subscriptions/dispatch/test_entry_buckets.py",)
_OWNERS = ("tests/unit/brokers/domain/subscriptions/test_entry_buckets.py",)
_DISTRIBUTION = ("tests/unit/shards/domain/scalable/test_distribution.py",)
_GROUPS = ("tests/unit/shards/domain/scalable/test_groups.py",)

MUTANTS = (
    Mutant(
        "buckets-move-undrained",
        "S6",
        "a bucket is sent to its new owner when nothing of it is in flight at the former one",
        (
            Edit(
                KeySharedDispatcher,
                "_target",
                "return owner if holder is None or holder is owner else None",
                "return owner",
            ),
        ),
        _BUCKETS,
    ),
    Mutant(
        "buckets-of-a-stale-layout",
        "S6",
        "a consumer with other buckets than the members is refused",
        (Edit(EntryBuckets, "add", "if tuple(ranges) != tuple(self.ranges):", "if False:"),),
        (*_BUCKETS, *_OWNERS),
    ),
    Mutant(
        "buckets-of-one-that-left",
        "S6",
        "the buckets of a consumer that leaves go to the others",
        (Edit(EntryBuckets, "remove", "if self._owned:", "if False:"),),
        (*_BUCKETS, *_OWNERS),
    ),
    Mutant(
        "buckets-by-keys-only",
        "S6",
        "a stamped entry goes by its stamp",
        (
            Edit(
                entry_metadata,
                "bucket_hash_of",
                'if metadata.HasField("entry_hash_min") and',
                "if False and",
            ),
        ),
        _BUCKETS,
    ),
    Mutant(
        "children-behind-parents-only",
        "S8",
        "a segment follows once everything before it is drained, not its parents alone",
        (Edit(Layout, "_held_back", " or not held_back.isdisjoint(parents)", ""),),
        _DISTRIBUTION,
    ),
    Mutant(
        "drained-by-a-report-of-before",
        "S8",
        "a report that arrives while the subscription is sought marks nothing",
        (Edit(groups, "_decide_drained", " or subscription.phase in _FORGETTING", ""),),
        _GROUPS,
    ),
    Mutant(
        "shares-of-readers",
        "S7",
        "the members of a checkpoint group share no segment",
        (Edit(Layout, "reassign", "subscription.type is SubscriptionType.STREAM and ", ""),),
        _DISTRIBUTION,
    ),
    Mutant(
        "remainders-by-name",
        "S7",
        "the remainder of a division goes to those that keep more by it",
        (Edit(distribution, "_fill", "kept.get(key, 0) <= level, ", ""),),
        _DISTRIBUTION,
    ),
)
