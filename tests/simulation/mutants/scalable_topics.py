"""The guards of scalable topics: entry buckets, who consumes which segments, drained segments."""

from __future__ import annotations

from brokers.domain.subscriptions.entry_buckets import EntryBuckets
from brokers.service import entry_metadata
from brokers.service.session.agent import BrokerAgent
from brokers.service.subscriptions.dispatch.key_shared import KeySharedDispatcher
from brokers.service.subscriptions.end_of_topic import EndOfTopic
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.topics.drained_units import DrainedUnits
from shards.domain.scalable import distribution, groups
from shards.domain.scalable.distribution import Layout
from shards.scalable.attachments import Attachments
from shards.scalable.consumer_grace import ConsumerGrace
from shards.scalable.drained_marks import DrainedMarks
from shards.sessions.drained_forwarding import DrainedForwarding
from tests.simulation.mutants.mutant import Edit, Mutant

_BUCKETS = ("tests/unit/brokers/service/subscriptions/dispatch/test_entry_buckets.py",)
_OWNERS = ("tests/unit/brokers/domain/subscriptions/test_entry_buckets.py",)
_DISTRIBUTION = ("tests/unit/shards/domain/scalable/test_distribution.py",)
_ATTACHMENTS = ("tests/unit/shards/scalable/test_attachments.py",)
_GRACE = ("tests/unit/shards/scalable/test_consumer_grace.py",)
_GROUPS = ("tests/unit/shards/domain/scalable/test_groups.py",)
_REPORTS = ("tests/unit/brokers/service/topics/test_drained_units.py",)
_AGENT = ("tests/unit/brokers/service/session/test_agent.py",)
_FORWARDING = ("tests/unit/shards/sessions/test_drained_forwarding.py",)
_MARKS = ("tests/unit/shards/scalable/test_drained_marks.py",)

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
        (Edit(EntryBuckets, "remove", "if self._owned else ()", "if False else ()"),),
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
    Mutant(
        "drained-before-it-is-durable",
        "S9",
        "a drained subscription is reported when its cursor is stored",
        (
            Edit(
                DrainedUnits,
                "note",
                "subscription.stored()",
                "__import__('brokers.service.subscriptions.cursor_writer', fromlist=['x'])"
                ".settled(None)",
            ),
        ),
        _REPORTS,
    ),
    Mutant(
        "drained-by-a-former-owner",
        "S9",
        "only the owner of the present session reports",
        (Edit(DrainedUnits, "_is_so", "return is_held and", "return"),),
        _REPORTS,
    ),
    Mutant(
        "drained-though-set-back",
        "S9",
        "a subscription that was set back meanwhile is not reported",
        (Edit(DrainedUnits, "_is_so", "and subscription.is_drained", ""),),
        _REPORTS,
    ),
    Mutant(
        "drained-lost-with-its-connection",
        "S9",
        "what is not settled is reported on the next connection",
        (Edit(DrainedUnits, "connected", "{**self._sent, **self._unsent}", "self._unsent"),),
        _REPORTS,
    ),
    Mutant(
        "drained-settled-for-a-later-reason",
        "S9",
        "a reason that comes behind a report has it repeated",
        (Edit(DrainedUnits, "settled", "and drained in self._noted_again", "and False"),),
        _REPORTS,
    ),
    Mutant(
        "drained-all-at-once",
        "S9",
        "a manager is sent so many that are not settled",
        (
            Edit(
                DrainedUnits,
                "_send",
                "and len(self._sent) < DRAINED_UNITS_IN_FLIGHT_MAX",
                "",
            ),
        ),
        _REPORTS,
    ),
    Mutant(
        "drained-once-for-all-consumers",
        "S9",
        "a consumer that connects later has it reported again",
        (
            Edit(
                EndOfTopic,
                "look",
                "consumer.has_reached_end = is_news = True",
                "consumer.has_reached_end = True",
            ),
        ),
        _REPORTS,
    ),
    Mutant(
        "drained-once-for-all-resets",
        "S9",
        "a subscription that was reset is reported anew",
        (Edit(Subscription, "reset", "self._end_of_topic.restart()", "pass"),),
        _REPORTS,
    ),
    Mutant(
        "drained-for-one-connection",
        "S9",
        "each connection to a manager has all reported again",
        (Edit(BrokerAgent, "_keep_connection", "self.on_connected()", "pass"),),
        _AGENT,
    ),
    Mutant(
        "drained-to-managers-of-before",
        "S9",
        "a manager that does not know the report is sent none",
        (Edit(BrokerAgent, "report_drained", "and self._takes_drained", ""),),
        _AGENT,
    ),
    Mutant(
        "drained-forwarded-once",
        "S9",
        "a report waits until its shard has settled it",
        (Edit(DrainedForwarding, "_forward_to", "if is_settled and", "if"),),
        _FORWARDING,
    ),
    Mutant(
        "drained-settled-by-an-earlier-report",
        "S9",
        "a later report of the same subscription is forwarded as well",
        (
            Edit(
                DrainedForwarding,
                "_forward_to",
                "and self._waiting.get(key) is mark",
                "and key in self._waiting",
            ),
        ),
        _FORWARDING,
    ),
    Mutant(
        "drained-marked-for-a-former-owner",
        "S9",
        "a shard notes what the present owner reports",
        (Edit(DrainedMarks, "_settle", "or not self._is_of_owner(mark)", ""),),
        _MARKS,
    ),
    Mutant(
        "drained-settled-before-the-seal",
        "S9",
        "a report of a segment that is not recorded as sealed is repeated",
        (
            Edit(
                DrainedMarks,
                "_settle",
                "return decision.code is not RejectionCode.NOT_ALLOWED",
                "return True",
            ),
        ),
        _MARKS,
    ),
    Mutant(
        "attachments-of-before",
        "S10",
        "an attachment of before does not replace a later one",
        (Edit(Attachments, "_attach", "if number and number < held:", "if False:"),),
        _ATTACHMENTS,
    ),
    Mutant(
        "detached-by-the-former-node",
        "S10",
        "the end of a connection counts only if its attachment is the one that holds",
        (
            Edit(
                Attachments,
                "detach",
                "node.members.get(member) == number",
                "member in self._holders",
            ),
        ),
        _ATTACHMENTS,
    ),
    Mutant(
        "a-grace-cut-short",
        "S10",
        "the look for consumers of earlier terms leaves those in a grace alone",
        (Edit(Attachments, "is_claimed", " or member in self._grace", ""),),
        _GRACE,
    ),
    Mutant(
        "removed-although-attached",
        "S10",
        "whether a consumer is attached is seen in the turn in which its removal is decided",
        (
            Edit(
                ConsumerGrace,
                "_propose_removal",
                "if self._attachments.is_claimed(member):",
                "if False:",
            ),
        ),
        _GRACE,
    ),
)
