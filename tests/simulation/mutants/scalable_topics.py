"""The guards of scalable topics: buckets, consumers of segments, drained ones, layout changes."""

from __future__ import annotations

from brokers.domain.subscriptions.entry_buckets import EntryBuckets
from brokers.service import entry_metadata
from brokers.service.session.agent import BrokerAgent
from brokers.service.subscriptions.dispatch.key_shared import KeySharedDispatcher
from brokers.service.subscriptions.end_of_topic import EndOfTopic
from brokers.service.subscriptions.subscription import Subscription
from brokers.service.topics import operations
from brokers.service.topics.drained_units import DrainedUnits
from brokers.service.topics.topic import Topic
from nextgen.backup import objects as backup_objects
from nextgen.client.scalable_topics import attached, consumers
from nextgen.client.st import client
from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.connection.pool import LinkPool
from nextgen.client.st.consuming.dead_letters import DeadLetters
from nextgen.client.st.consuming.schema_versions import InVersions
from nextgen.client.st.consuming.segment_consumer import SegmentConsumer
from nextgen.client.st.consuming.stream_consumer import StreamConsumer
from nextgen.client.st.domain import layout as st_layout
from nextgen.client.st.domain.outbox import Lane, Outbox
from nextgen.client.st.producing.segment_producer import SegmentProducer
from nextgen.client.st.watching.namespace_watch import NamespaceWatch
from nextgen.client.st.watching.registration import Registration
from nextgen.pulsar.scalable_topics.consumer_session import ConsumerSession
from nextgen.pulsar.scalable_topics.stalled_segments import SegmentLooks, StalledSegments
from shards.assignment.unit_planner import UnitPlanner
from shards.domain.scalable import distribution, groups, layout_changes
from shards.domain.scalable import restore as scalable_restore
from shards.domain.scalable.distribution import Layout
from shards.inventory.service import InventoryService
from shards.inventory.topic_deletion import TopicDeletion
from shards.scalable import settled_commands, subscription_cursors, unknown_subscriptions
from shards.scalable.attachments import Attachments
from shards.scalable.consumer_grace import ConsumerGrace
from shards.scalable.controller import ScalableController
from shards.scalable.drained_marks import DrainedMarks
from shards.scalable.layout_change import LayoutChange
from shards.scalable.segment_removal import SegmentRemoval
from shards.scalable.segment_units import SegmentUnits
from shards.scalable.subscription_cursors import SubscriptionCursors
from shards.sessions.forwarding.drained_forwarding import DrainedForwarding
from tests.simulation.mutants.mutant import Edit, Mutant

_NAMESPACE_CONSUMERS = ("tests/unit/client/st/test_namespaces.py",)
_BUCKETS = ("tests/unit/brokers/service/subscriptions/dispatch/test_entry_buckets.py",)
_OWNERS = ("tests/unit/brokers/domain/subscriptions/test_entry_buckets.py",)
_SESSIONS = ("tests/unit/pulsar/scalable_topics/test_consumer_session.py",)
_STALLED = ("tests/unit/pulsar/scalable_topics/test_stalled_segments.py",)
_DISTRIBUTION = ("tests/unit/shards/domain/scalable/test_distribution.py",)
_ATTACHMENTS = ("tests/unit/shards/scalable/test_attachments.py",)
_GRACE = ("tests/unit/shards/scalable/test_consumer_grace.py",)
_CONSUMERS = ("tests/unit/client/scalable_topics/test_consumers.py",)
_GROUPS = ("tests/unit/shards/domain/scalable/test_groups.py",)
_REPORTS = ("tests/unit/brokers/service/topics/test_drained_units.py",)
_AGENT = ("tests/unit/brokers/service/session/test_agent.py",)
_FORWARDING = ("tests/unit/shards/sessions/forwarding/test_drained_forwarding.py",)
_LAYOUT_CHANGES = ("tests/unit/shards/scalable/test_layout_change.py",)
_CURSORS = ("tests/unit/shards/scalable/test_subscription_cursors.py",)
_REMOVALS = ("tests/unit/shards/scalable/test_segment_removal.py",)
_OUTBOX = ("tests/unit/client/st/domain/test_outbox.py",)
_ST_LAYOUTS = ("tests/unit/client/st/domain/test_layout.py",)
_ST_PRODUCING = ("tests/unit/client/st/test_producing.py",)
_ST_CONSUMING = ("tests/unit/client/st/test_consuming.py",)
_BACKUPS = ("tests/unit/backup/test_backup_files.py",)
_RESTORED = ("tests/unit/shards/scalable/test_restored_layouts.py",)
_RESTORES = ("tests/unit/shards/domain/scalable/test_restore.py",)
_MARKS = ("tests/unit/shards/scalable/test_drained_marks.py",)

_MIGRATION = ("tests/unit/shards/scalable/test_migration.py",)
_OF_LAYOUTS = ("tests/unit/shards/domain/scalable/test_layout_changes.py",)

MUTANTS = (
    Mutant(
        "late-subscriptions-stay-behind",
        "SC13",
        "a classic unit that has ended is asked once more for its subscriptions",
        (Edit(LayoutChange, "_seal_one", "if operation.kind is ChangeKind.MIGRATE:", "if False:"),),
        _MIGRATION,
    ),
    Mutant(
        "migrations-end-without-cursors",
        "SC13",
        "a migration ends only with the cursors of every subscription in the segments that follow",
        (
            Edit(
                layout_changes,
                "_decide_seal",
                "operation.kind is ChangeKind.MIGRATE and (late",
                "False and (late",
            ),
        ),
        _OF_LAYOUTS,
    ),
    Mutant(
        "replaced-topics-go-alone",
        "SC2",
        "a classic topic whose units are segments is not deleted by itself",
        (
            Edit(
                TopicDeletion,
                "_plan",
                "if self.layout_beside(parsed) is not None:",
                "if False:",
            ),
        ),
        _MIGRATION,
    ),
    Mutant(
        "pruned-partitions-begin-anew",
        "SC8",
        "a classic unit that left the layout is not assigned again",
        (Edit(UnitPlanner, "_kept", "if gone is not None:", "if False:"),),
        _MIGRATION,
    ),
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
    Mutant(
        "layout-changes-taken-back-until-sealed",
        "SC4",
        "an operation whose children are ready is not taken back",
        (
            Edit(
                layout_changes,
                "_decide_abandon",
                "if operation.are_children_ready:",
                "if operation.sealed:",
            ),
        ),
        _LAYOUT_CHANGES,
    ),
    Mutant(
        "children-without-later-subscriptions",
        "SC4",
        "children are ready with the cursors of all subscriptions as of that decision",
        (
            Edit(
                layout_changes,
                "_decide_ready",
                "missing.difference_update(command.subscriptions)",
                "missing.clear()",
            ),
        ),
        _LAYOUT_CHANGES,
    ),
    Mutant(
        "segments-refuse-new-members-at-once",
        "SC17",
        "the new consumer of a segment waits for the former one",
        (Edit(Topic, "subscribe", "if self.unit.is_segment and", "if False and"),),
        ("tests/unit/brokers/service/topics/test_segment_handover.py",),
    ),
    Mutant(
        "children-without-subscriptions-of-clients",
        "SC4",
        "children get the subscriptions that clients made at the parents",
        (Edit(LayoutChange, "_give_unknown", "if names:", "if False:"),),
        _LAYOUT_CHANGES,
    ),
    Mutant(
        "children-without-last-subscriptions-of-clients",
        "SC4",
        "children get what clients made at a parent until it ended",
        (
            Edit(
                LayoutChange,
                "_seal_one",
                "self._found.update(sealed.subscriptions)",
                "pass",
            ),
        ),
        _LAYOUT_CHANGES,
    ),
    Mutant(
        "subscriptions-of-clients-not-adopted",
        "SC4",
        "an operator reaches a subscription that clients made at the segments",
        (
            Edit(
                unknown_subscriptions,
                "_adopt",
                "if await _is_at_brokers(dependencies, units, topic, subscription):",
                "if False:",
            ),
        ),
        ("tests/unit/shards/scalable/test_subscription_cursors.py",),
    ),
    Mutant(
        "subscriptions-that-were-deleted-adopted-again",
        "SC4",
        "a deletion that comes again adopts nothing that clients made since",
        (
            Edit(
                unknown_subscriptions,
                "adopt_unknown",
                "known = await find_known(request)",
                "known = ()",
            ),
        ),
        ("tests/unit/shards/scalable/test_subscription_cursors.py",),
    ),
    Mutant(
        "subscriptions-that-another-shard-deleted-adopted-again",
        "C12",
        "a command that a former shard carried out is known to be carried out",
        (Edit(InventoryService, "known_commands", ", *former.results", ""),),
        ("tests/unit/shards/inventory/test_former_outcomes.py",),
    ),
    Mutant(
        "subscriptions-of-two-types",
        "S11",
        "a subscription that is there is not created with another type",
        (Edit(groups, "_decide_create", "if present.type is not command.type:", "if False:"),),
        _GROUPS,
    ),
    Mutant(
        "parents-end-before-children-are-ready",
        "SC4",
        "no parent is asked to end before its children are ready",
        (Edit(LayoutChange, "step", "if operation.are_children_ready:", "if True:"),),
        _LAYOUT_CHANGES,
    ),
    Mutant(
        "work-of-earlier-leaders-left",
        "SC10",
        "a new leader goes on with what the view says is unfinished",
        (
            Edit(
                ScalableController,
                "start",
                'keep("scalable_topics", self._find_work),',
                "",
            ),
        ),
        _LAYOUT_CHANGES,
    ),
    Mutant(
        "layout-changes-answered-when-planned",
        "SC10",
        "the answer of a command comes when what it began is done",
        (
            Edit(
                settled_commands,
                "settle_all",
                "if make is not None and not result.rejection_code:",
                "if make is None and not kind:",
            ),
        ),
        (*_LAYOUT_CHANGES, *_CURSORS),
    ),
    Mutant(
        "parents-wait-for-silent-brokers",
        "SC7",
        "a segment whose broker does not answer moves",
        (
            Edit(
                SegmentUnits,
                "_note_silence",
                "(moved,) = await self._moves.move([wanted], _MOVE_MS)",
                "moved = LookupAnswer()",
            ),
        ),
        _LAYOUT_CHANGES,
    ),
    Mutant(
        "slow-brokers-get-no-more-time",
        "SC7",
        "after each move in vain a segment's broker gets twice the time",
        (
            Edit(
                SegmentUnits,
                "_note_silence",
                "min(2 * silence.patience_ms, SEGMENT_UNREACHABLE_MS_MAX)",
                "silence.patience_ms",
            ),
        ),
        _LAYOUT_CHANGES,
    ),
    Mutant(
        "segments-removed-before-their-commit",
        "SC8",
        "messages go once it is committed that their segment left the layout",
        (Edit(SegmentRemoval, "remove", "await decisions.confirm()", "pass"),),
        _REMOVALS,
    ),
    Mutant(
        "segments-forgotten-before-their-messages",
        "SC8",
        "a segment is forgotten when a broker says that its messages are gone",
        (
            Edit(
                SegmentRemoval,
                "_remove_messages",
                "await self._brokers.remove(unit, timeout_ms=_REMOVE_MS)",
                "pass",
            ),
        ),
        _REMOVALS,
    ),
    Mutant(
        "segments-removed-in-their-last-known-epoch",
        "SC8",
        "a segment is removed in all epochs of its leader's generation",
        (
            Edit(
                SegmentRemoval,
                "_remove_messages",
                "last_epoch_of_generation(known)",
                "known",
            ),
        ),
        _REMOVALS,
    ),
    Mutant(
        "registered-again-after-a-leave",
        "S10",
        "a node registers a removed consumer again only if its attachment holds",
        (
            Edit(
                consumers._Joined,
                "_next",
                "await self._consumers.confirm(self._attachment)",
                "pass",
            ),
        ),
        _CONSUMERS,
    ),
    Mutant(
        "replaced-and-back",
        "S10",
        "an attachment that was replaced does not hold again when the later one ends",
        (Edit(Attachments, "_attach", "if number in node.ended:", "if False:"),),
        (*_ATTACHMENTS, *_CONSUMERS),
    ),
    Mutant(
        "nodes-that-a-leader-does-not-know",
        "S10",
        "a node that the leader does not know attaches all of its consumers",
        (Edit(attached._OfShard, "_send", "if not answer.is_known:", "if False:"),),
        _CONSUMERS,
    ),
    Mutant(
        "client-sends-past-a-sealed-segment",
        "CS1",
        "a segment sends nothing while one that left the layout has batches in flight",
        (Edit(Outbox, "_is_held", "return bool(self._leaving) and", "return False and"),),
        _OUTBOX,
    ),
    Mutant(
        "client-appends-what-comes-back",
        "CS1",
        "messages that come back are put where their numbers belong",
        (Edit(Lane, "sort", "sorted(queue, key=lambda each: each.number)", "queue"),),
        _OUTBOX,
    ),
    Mutant(
        "client-takes-an-older-layout",
        "CS2",
        "a layout of a lower epoch that shares a segment is stale",
        (
            Edit(
                st_layout,
                "compare_layouts",
                "if offered.epoch < current.epoch:",
                "if False:",
            ),
        ),
        _ST_LAYOUTS,
    ),
    Mutant(
        "client-acknowledges-what-was-not-taken",
        "CS3",
        "what a segment that leaves has enqueued and the application not taken is in no vector",
        (
            Edit(
                StreamConsumer,
                "_assigned",
                "self._delivered.forget_behind(each.topic, self._taken_number)",
                "pass",
            ),
        ),
        _ST_CONSUMING,
    ),
    Mutant(
        "seeks-leave-their-assignments",
        "S8",
        "a report of before a seek is of an assignment that has ended",
        (
            Edit(
                SubscriptionCursors,
                "_set_in",
                "if is_seeking and place is not None and _may_have_ended(topic, segment):",
                "if False:",
            ),
        ),
        _CURSORS,
    ),
    Mutant(
        "deletions-leave-their-assignments",
        "S8",
        "a report of a deleted subscription is of an assignment that has ended",
        (
            Edit(
                SubscriptionCursors,
                "_drop",
                "if _may_have_ended(topic, segment)",
                "if False",
            ),
        ),
        _CURSORS,
    ),
    Mutant(
        "seeks-leave-ended-parents",
        "S8",
        "a report of before a seek does not count for a parent that has ended meanwhile either",
        (
            Edit(
                subscription_cursors,
                "_may_have_ended",
                "segment.is_sealed or segment.segment_id in operation.parents",
                "segment.is_sealed",
            ),
        ),
        _CURSORS,
    ),
    Mutant(
        "seeks-to-the-end-leave-undrained",
        "S8",
        "a sealed segment whose end a seek goes to is drained",
        (
            Edit(
                groups,
                "_decide_ready",
                "return Accepted((ready, *drained))",
                "return Accepted((ready,))",
            ),
        ),
        (*_CURSORS, *_GROUPS),
    ),
    Mutant(
        "client-drops-what-is-behind-an-answer",
        "CS6",
        "what comes before the consumer is known to be subscribed is kept",
        (Edit(SegmentConsumer, "received", "if link is self._attaching:", "if False:"),),
        _ST_CONSUMING,
    ),
    Mutant(
        "client-cancels-who-waits-for-a-segment",
        "CS10",
        "a segment that is left before it was subscribed cancels nobody who waits for it",
        (
            Edit(
                SegmentConsumer,
                "close",
                "self.opened.set_result(None)",
                "self.opened.cancel()",
            ),
        ),
        _ST_CONSUMING,
    ),
    Mutant(
        "client-drops-what-closes-a-new-producer",
        "CS6",
        "what comes before the producer is known to be open is kept",
        (Edit(SegmentProducer, "received", "if link is self._attaching:", "if False:"),),
        _ST_PRODUCING,
    ),
    Mutant(
        "client-takes-an-answer-behind-a-push",
        "CS6",
        "an assignment that comes before its answer is looked at is taken behind it",
        (Edit(Registration, "received", "not link.waits_for(asked):", "False:"),),
        _ST_CONSUMING,
    ),
    Mutant(
        "client-subscribes-twice",
        "CS5",
        "a consumer that is subscribed anew stops the attempt before",
        (
            Edit(
                SegmentConsumer,
                "_is_opening",
                "and self._opener is asyncio.current_task()",
                "",
            ),
        ),
        _ST_CONSUMING,
    ),
    Mutant(
        "client-leaves-a-batch-it-had-unread",
        "CS5",
        "an entry whose messages the reader had all is acknowledged",
        (
            Edit(
                SegmentConsumer,
                "_deliver",
                "self.entries.forget(place.entry)",
                "return",
            ),
        ),
        _ST_CONSUMING,
    ),
    Mutant(
        "restored-layouts-abandoned",
        "BR7",
        "the operation of a restored layout is taken back by nobody",
        (
            Edit(
                layout_changes,
                "_decide_abandon",
                "if operation.kind is ChangeKind.RESTORE:",
                "if False:",
            ),
        ),
        _RESTORES,
    ),
    Mutant(
        "restored-segment-ids-used-again",
        "BR7",
        "segments behind a restore have ids that no cluster used before",
        (
            Edit(
                scalable_restore,
                "restore_scalable",
                "max(wanted.next_segment_id, least_number)",
                "wanted.next_segment_id",
            ),
        ),
        _RESTORES,
    ),
    Mutant(
        "restored-sealed-segments-stay-open",
        "BR7",
        "a segment that a backup has as sealed is ended at its broker",
        (Edit(scalable_restore, "_planned", "(*ended, *replaced)", "replaced"),),
        (*_RESTORED, *_RESTORES),
    ),
    Mutant(
        "restored-parents-pruned",
        "BR7",
        "no segment is pruned that an operation is about to end",
        (Edit(layout_changes, "_decide_prune", "if _is_parent(topic, segment_id):", "if False:"),),
        _RESTORES,
    ),
    Mutant(
        "restored-layouts-not-carried-on",
        "BR7",
        "the operations of restored layouts go on as soon as the restore has ended",
        (Edit(ScalableController, "look_again", "self._has_room.set()", "pass"),),
        _RESTORED,
    ),
    Mutant(
        "backups-with-consumers",
        "BR7",
        "a backup has no registered consumers",
        (Edit(backup_objects, "forget_consumers", "del subscription.consumers[:]", "pass"),),
        _BACKUPS,
    ),
    Mutant(
        "client-goes-where-there-is-no-tls",
        "CS7",
        "an address without TLS is none for a client with TLS",
        (Edit(Brokers, "_address", "if address.is_tls is not self._is_tls:", "if False:"),),
        ("tests/unit/client/st/test_transport.py",),
    ),
    Mutant(
        "client-answers-with-its-first-token",
        "CS7",
        "a challenge is answered with a token that is made for it",
        (Edit(LinkPool, "_open", "link.token = self._token", "link.token = lambda: token"),),
        ("tests/unit/client/st/test_transport.py",),
    ),
    Mutant(
        "client-delivers-before-an-unknown-version",
        "CS8",
        "an entry waits behind one whose version of the schema is on its way",
        (Edit(InVersions, "put", "if not self._held_back:", "if True:"),),
        ("tests/unit/client/st/test_schema_versions.py",),
    ),
    Mutant(
        "client-acknowledges-chunks-of-an-incomplete-message",
        "CS8",
        "a cumulative acknowledgement stops before a message that is not complete",
        (
            Edit(
                SegmentConsumer,
                "acknowledge_until",
                "before=self._chunks.first_entry",
                "before=None",
            ),
        ),
        ("tests/unit/client/st/test_chunked_messages.py",),
    ),
    Mutant(
        "client-loses-dead-letters",
        "CS8",
        "a dead letter that is not stored is not acknowledged",
        (Edit(DeadLetters, "_forward_all", "if isinstance(result, BaseException):", "if False:"),),
        ("tests/unit/client/st/test_redelivery.py",),
    ),
    Mutant(
        "client-takes-one-receipt-for-all-chunks",
        "CS8",
        "a message in chunks is stored when each chunk has its receipt",
        (Edit(SegmentProducer, "_receipt", "if batch.content.receipts_missing > 0:", "if False:"),),
        ("tests/unit/client/st/test_chunked_messages.py",),
    ),
    Mutant(
        "namespace-consumer-creates-topics",
        "CS9",
        "a topic that is listed and absent is not created by its consumer",
        (Edit(client, "_of_existing", "create_if_missing=False", "create_if_missing=True"),),
        _NAMESPACE_CONSUMERS,
    ),
    Mutant(
        "namespace-watch-is-not-opened-again",
        "CS9",
        "a watch that a server refuses later is opened again",
        (
            Edit(
                NamespaceWatch,
                "received",
                "self._end(error_of(update.error, update.message))",
                "pass",
            ),
        ),
        _NAMESPACE_CONSUMERS,
    ),
    Mutant(
        "subscriptions-exist-before-they-are-stored",
        "SC9",
        "a subscription that is being created is said to exist once it is stored",
        (
            Edit(
                operations,
                "create_subscription",
                "if name not in topic.subscriptions:",
                "if not was_there:",
            ),
        ),
        ("tests/unit/brokers/adapters/test_topic_admin.py",),
    ),
    Mutant(
        "stalled-segments-stay-with-their-consumer",
        "SC25",
        "a stalled segment is taken from its consumer before it is given back",
        (
            Edit(
                ConsumerSession,
                "_watch_stalled",
                "replace(assigned, segments=tuple(others))",
                "assigned",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "stalled-though-the-application-is-slow",
        "SC25",
        "a consumer whose queue is full is not stalled",
        (
            Edit(
                SegmentLooks,
                "look",
                "if consumer.available_permits <= 0:",
                "if consumer.available_permits < 0:",
            ),
        ),
        _STALLED,
    ),
    Mutant(
        "stalled-though-it-makes-progress",
        "SC25",
        "a segment of which something is delivered or acknowledged is not stalled",
        (Edit(StalledSegments, "_watch_one", "if reading != before:", "if before is None:"),),
        _STALLED,
    ),
    Mutant(
        "stalled-again-at-once",
        "SC25",
        "a segment is given anew after twice the time of before",
        (Edit(StalledSegments, "_watch_one", "min(2 * patience_ms,", "min(patience_ms,"),),
        _STALLED,
    ),
)
