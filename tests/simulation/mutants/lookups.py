"""The guards of lookups' answers: the leased feed of a shard, and the cache of a discovery node."""

from __future__ import annotations

from discovery.adapters.servers.loop_turns import LoopTurns
from discovery.adapters.servers.pulsar_connection import DiscoveryConnection
from discovery.adapters.shard_changes.leased_assignments import LeasedAssignments
from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache, Delta
from discovery.service.lookups.line import LookupLine
from discovery.service.lookups.lookup import LookupService
from discovery.service.lookups.shard_lookups import ShardLookups
from shards.watches.assignment_feed import AssignmentFeed, LeasedCursor
from shards.watches.change_lease import LeasedWatch
from shards.watches.effective_writes import EffectiveWrites
from tests.simulation.mutants.mutant import Edit, Mutant

_FRESHNESS = "tests/unit/discovery/service/test_lookup_freshness.py"
_CACHE = ("tests/unit/discovery/domain/test_answer_cache.py",)
_FEED = (
    "tests/unit/shards/watches/test_assignment_feed.py",
    "tests/unit/shards/watches/test_leased_watch.py",
)
_LEASED = (
    "tests/unit/shards/watches/test_leased_watch.py",
    "tests/unit/discovery/adapters/test_leased_assignments.py",
    "tests/unit/shards/watches/test_acknowledged_watches.py",
    "tests/unit/shards/watches/test_change_stream.py",
)

_CACHE_MUTANTS = (
    Mutant(
        "cache-takes-answers-from-before-its-floor",
        "A5",
        "an answer is taken in if every change behind it is known",
        (Edit(AnswerCache, "is_outdated", "if facts.position < shard.floor:", "if False:"),),
        (*_CACHE, _FRESHNESS),
    ),
    Mutant(
        "cache-takes-answers-that-are-outdated",
        "A5",
        "an answer that a change overtook is not taken in",
        (Edit(AnswerCache, "insert", " or self.is_outdated(shard_id, facts)", ""),),
        _CACHE,
    ),
    Mutant(
        "cache-keeps-what-a-change-outdated",
        "A5",
        "a change takes the answer that it outdates away",
        (Edit(AnswerCache, "apply", "self._remove_outdated(delta)", "pass"),),
        _CACHE,
    ),
    Mutant(
        "cache-raises-no-floor",
        "A5",
        "an answer from before a forgotten change is not taken in",
        (
            Edit(
                AnswerCache,
                "apply",
                "shard.floor = max(shard.floor, shard.deltas.pop(oldest).position)",
                "shard.deltas.pop(oldest)",
            ),
        ),
        _CACHE,
    ),
    Mutant(
        "cache-remembers-every-change",
        "A5",
        "a bounded number of changes is remembered",
        (Edit(AnswerCache, "apply", "len(shard.deltas) > self._deltas_max", "False"),),
        _CACHE,
    ),
    Mutant(
        "cache-forgets-the-latest-change",
        "A5",
        "of a topic with many changes the latest is forgotten last",
        (Edit(AnswerCache, "apply", "shard.deltas.pop(delta.topic, None)", "pass"),),
        _CACHE,
    ),
    Mutant(
        "cache-goes-back",
        "A5",
        "the position of a shard does not go back",
        (Edit(AnswerCache, "apply", "max(shard.position, position)", "position"),),
        _CACHE,
    ),
    Mutant(
        "cache-answers-after-its-time",
        "A5",
        "an answer is given until its time is over",
        (Edit(AnswerCache, "lookup", " or entry[1].until <= now", ""),),
        _CACHE,
    ),
    Mutant(
        "cache-finds-after-its-time",
        "A5",
        "an answer that was not used lately is given until its time is over as well",
        (Edit(AnswerCache, "_find", "entry if entry[1].until > now else None", "entry"),),
        _CACHE,
    ),
    Mutant(
        "cache-routes-after-its-time",
        "A5",
        "a route is given until its time is over",
        (Edit(AnswerCache, "route", " or entry[1].until <= now", ""),),
        _CACHE,
    ),
    Mutant(
        "cache-renews-what-a-reset-ended",
        "A5",
        "a reset ends every answer of the shard",
        (Edit(AnswerCache, "reset", "permit.until = NEVER", "pass"),),
        _CACHE,
    ),
    Mutant(
        "cache-renews-ended-sessions",
        "A5, A6",
        "a renewal does not revive the answers of a session that ended",
        (Edit(AnswerCache, "end_sessions", "del shard.permits[session_id]", "pass"),),
        _CACHE,
    ),
    Mutant(
        "cache-answers-for-ended-sessions",
        "A5, A6",
        "a session that ended takes its answers along",
        (Edit(AnswerCache, "end_sessions", "permit.until = NEVER", "pass"),),
        _CACHE,
    ),
    Mutant(
        "cache-keeps-two-answers",
        "A5",
        "of two answers about a topic the later replaces the earlier",
        (Edit(AnswerCache, "insert", "self._old.pop(facts.topic, None)", "pass"),),
        _CACHE,
    ),
    Mutant(
        "cache-looks-at-the-young-only",
        "A5",
        "a change also takes away an answer that was not used lately",
        (Edit(AnswerCache, "_remove_outdated", "(self._young, self._old)", "(self._young,)"),),
        _CACHE,
    ),
    Mutant(
        "cache-grows-without-bound",
        "A5",
        "a bounded number of answers is kept",
        (Edit(AnswerCache, "_keep", "len(self._young) >= self._generation_max", "False"),),
        _CACHE,
    ),
    Mutant(
        "cache-remembers-every-spelling",
        "A5",
        "a bounded number of spellings is remembered",
        (Edit(AnswerCache, "add_alias", "len(self._aliases) >= self._aliases_max", "False"),),
        _CACHE,
    ),
    Mutant(
        "cache-takes-a-namesake",
        "A5",
        "a topic that was created again has another owner, whatever its epoch",
        (Edit(Delta, "outdates", "self.topic_id != facts.topic_id", "False"),),
        _CACHE,
    ),
    Mutant(
        "cache-keeps-what-ended",
        "A5",
        "the end of an assignment outdates the answer of its epoch",
        (Edit(Delta, "outdates", "self.epoch >= facts.epoch", "self.epoch > facts.epoch"),),
        _CACHE,
    ),
    Mutant(
        "cache-forgets-what-is-true",
        "A10",
        "a change does not outdate the answer that it brings",
        (
            Edit(
                Delta,
                "outdates",
                "return self.epoch > facts.epoch",
                "return self.epoch >= facts.epoch",
            ),
        ),
        _CACHE,
    ),
)

_ABSENT = (
    "tests/unit/discovery/domain/test_absent_names.py",
    "tests/unit/discovery/service/test_absent_lookups.py",
    "tests/unit/shards/watches/test_leased_watch.py",
)

_ABSENT_MUTANTS = (
    Mutant(
        "absence-outlives-the-creation",
        "A15",
        "a creation that the watch names ends the absence",
        (Edit(AbsentNames, "created", "self._end(names)", "pass"),),
        _ABSENT,
        (("cluster", 10),),
    ),
    Mutant(
        "absence-outlives-the-lease",
        "A15",
        "an absence is given within the lease of the watch",
        (Edit(AbsentNames, "find", " or absence.shard.until <= now", ""),),
        _ABSENT,
        (("cluster", 10),),
    ),
    Mutant(
        "absence-from-before-the-watch",
        "A15",
        "an absence is taken in only if every creation behind it is going to be named",
        (Edit(AbsentNames, "put", "max(shard.position, self._floors.get(shard_id, 0))", "0"),),
        _ABSENT,
    ),
    Mutant(
        "absence-outlives-a-reset",
        "A15",
        "a watch that begins again ends what it may have missed",
        (Edit(AbsentNames, "reset", "shard.until = NEVER", "pass"),),
        _ABSENT,
    ),
    Mutant(
        "absence-outlives-a-creation-here",
        "A16",
        "a client that created a topic through this process finds it",
        (Edit(AbsentNames, "created_here", "self._end(names)", "pass"),),
        _ABSENT,
    ),
    Mutant(
        "absence-from-before-the-callers-writes",
        "A16",
        "an absence is as recent as what its caller knows",
        (Edit(AbsentNames, "find", "if known and known", "if False and known"),),
        _ABSENT,
    ),
    Mutant(
        "creators-join-earlier-questions",
        "A16",
        "a lookup with a position of the shard joins no question that was sent",
        (Edit(LookupService, "_asked", "is_fresh or shard_id in known", "is_fresh"),),
        _ABSENT,
    ),
    Mutant(
        "absences-without-an-end",
        "A17",
        "a bounded number of absent names is remembered",
        (Edit(AbsentNames, "_is_full", "len(self._absences) >= self._names_max", "False"),),
        _ABSENT,
    ),
)

_TURNS = (
    "tests/unit/discovery/adapters/test_connection_turns.py",
    "tests/unit/discovery/service/lookups/test_line.py",
    "tests/unit/discovery/service/lookups/test_shard_lookups.py",
)

_TURN_MUTANTS = (
    Mutant(
        "turns-belong-to-who-has-them",
        "A18",
        "behind a part of a long read the other connections have their turn",
        (
            Edit(
                LoopTurns, "has_time", "not self._waiting and self._clock() < self._ends_at", "True"
            ),
        ),
        _TURNS,
    ),
    Mutant(
        "turns-leave-nothing-to-others",
        "A18",
        "between two turns everything else has its rounds",
        (Edit(LoopTurns, "_next", "if rounds_left and self._waiting:", "if False:"),),
        _TURNS,
    ),
    Mutant(
        "connections-wait-with-any-number-of-commands",
        "A18",
        "a connection with too many commands that wait is not read",
        (Edit(DiscoveryConnection, "handle", "self._is_full = True", "pass"),),
        _TURNS,
    ),
    Mutant(
        "floods-have-every-request",
        "A19",
        "a tenant with many names never has all requests that may be under way",
        (Edit(LookupLine, "_take_own", "self._own_batches >= own_max", "False"),),
        _TURNS,
    ),
    Mutant(
        "floods-wait-without-bound",
        "A19",
        "the names of one tenant that wait are bounded",
        (
            Edit(
                ShardLookups,
                "ask",
                "self._of_tenant[flight.tenant] >= self._tenant_names_waiting_max",
                "False",
            ),
        ),
        _TURNS,
    ),
)

_FEED_MUTANTS = (
    Mutant(
        "feed-updates-an-ended-subscription",
        "V9",
        "a subscription that ended gives no update",
        (Edit(LeasedCursor, "take_update", "if self.error is not None:", "if False:"),),
        _FEED,
    ),
    Mutant(
        "feed-prolongs-what-was-asked-later",
        "L19",
        "a confirmation is of the questions that came before it",
        (
            Edit(
                LeasedCursor,
                "confirm",
                "(self._feed.commit_position, asked_at_ms)",
                "(self._feed.commit_position, self.asked_at_ms)",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-confirms-at-what-it-has-seen",
        "L19",
        "a confirmation counts what was committed, and not only what the feed has seen",
        (
            Edit(
                AssignmentFeed,
                "commit_position",
                "max(self._position, self._log.commit_position)",
                "self._position",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-confirms-without-a-majority",
        "L19",
        "a majority confirms the leader before anything is prolonged",
        (Edit(LeasedCursor, "confirm", "await self._feed.confirm_leadership()", "pass"),),
        _FEED,
        (("cluster", 6),),
    ),
    Mutant(
        "feed-takes-an-acknowledgement-back",
        "A4",
        "what a subscriber acknowledged stays acknowledged",
        (Edit(LeasedCursor, "acknowledge", "if position > self.acked:", "if True:"),),
        _FEED,
    ),
    Mutant(
        "feed-has-a-subscriber-twice",
        "A4",
        "an older subscription of the same subscriber ends",
        (Edit(AssignmentFeed, "subscribe", "if older is not None:", "if False:"),),
        _FEED,
    ),
    Mutant(
        "feed-has-any-number-of-subscribers",
        "A4",
        "a shard has a bounded number of subscribers",
        (
            Edit(
                AssignmentFeed,
                "subscribe",
                "len(self._subscriptions) >= ASSIGNMENT_SUBSCRIBERS_MAX",
                "False",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-believes-in-the-future",
        "A4",
        "nobody has acknowledged what is to come",
        (
            Edit(
                AssignmentFeed,
                "subscribe",
                "min(subscription.cursor, self._position)",
                "subscription.cursor",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-waits-for-who-is-back",
        "A4",
        "a subscriber that returned does not count as departed",
        (
            Edit(
                EffectiveWrites,
                "join",
                "self._departed.pop(stream.subscriber_id, None)",
                "self._departed.get(stream.subscriber_id)",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-lets-an-older-stream-end-a-newer",
        "A4",
        "the end of an older stream ends no later subscription",
        (
            Edit(
                AssignmentFeed,
                "leave",
                "self._subscriptions.get(subscription.subscriber_id) is not subscription",
                "subscription.subscriber_id not in self._subscriptions",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-forgets-who-left",
        "A4",
        "a subscriber that left counts for one time-to-live",
        (
            Edit(
                EffectiveWrites,
                "note_left",
                "now + _TTL_SECONDS if subscriber.is_leased",
                "now if subscriber.is_leased",
            ),
        ),
        _FEED,
        (("cluster", 12),),
    ),
    Mutant(
        "feed-is-effective-under-a-new-leader",
        "A4, PO5",
        "a new leader waits one time-to-live for the subscribers of the earlier one",
        (Edit(EffectiveWrites, "_is_effective", "now < self._leads_from", "False"),),
        _FEED,
        (("cluster", 12),),
    ),
    Mutant(
        "feed-does-not-wait-for-subscribers",
        "A4",
        "a position is effective when every subscriber has acknowledged it",
        (
            Edit(
                EffectiveWrites,
                "_is_awaited",
                "is_lost = waiter.are_leases_over",
                "is_lost = True",
            ),
        ),
        _FEED,
        (("cluster", 12),),
    ),
    Mutant(
        "feed-does-not-wait-for-who-left",
        "A4",
        "who left has acknowledged the position, or its time is over",
        (
            Edit(
                EffectiveWrites,
                "_is_missed",
                "not waiter.are_leases_over and not left.stream",
                "False and not left.stream",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-waits-for-ever",
        "A4",
        "a wait ends within one time-to-live",
        (Edit(EffectiveWrites, "_settle", "now >= waiter.lease_ends", "False"),),
        _FEED,
    ),
    Mutant(
        "feed-goes-on-with-the-silent",
        "A4",
        "a subscriber that is silent for one time-to-live is cut off",
        (Edit(EffectiveWrites, "_settle", "self._cut_off(waiter.position)", "pass"),),
        _FEED,
    ),
    Mutant(
        "feed-cuts-off-before-the-time-is-over",
        "A4",
        "the wait has a margin for an update that left just before",
        (
            Edit(
                EffectiveWrites,
                "_wait_acknowledged",
                "now + _TTL_SECONDS + _MARGIN_SECONDS",
                "now + _TTL_SECONDS",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-cuts-off-who-acknowledged",
        "A4",
        "only who has not acknowledged is cut off",
        (
            Edit(
                EffectiveWrites,
                "_cut_off",
                "each.is_leased and not each.stream.has_taken_in((), position)",
                "each.is_leased",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-leaves-who-waits",
        "L3",
        "whoever waits when leadership ends is refused",
        (Edit(EffectiveWrites, "close", "waiter.future.set_exception(error)", "pass"),),
        _FEED,
    ),
    Mutant(
        "feed-goes-on-for-who-is-ahead",
        "A5",
        "a subscriber from the future is reset",
        (Edit(AssignmentFeed, "advance", "subscription.cursor > self._position", "False"),),
        _FEED,
    ),
    Mutant(
        "feed-leaves-a-gap",
        "A5",
        "what is not remembered any more is read from the log",
        (Edit(AssignmentFeed, "advance", "subscription.cursor < self._floor", "False"),),
        _FEED,
    ),
    Mutant(
        "feed-does-not-say-that-more-waits",
        "A5",
        "a subscriber that is behind is updated again at once",
        (Edit(AssignmentFeed, "advance", "if update.position < self._position:", "if False:"),),
        _FEED,
    ),
    Mutant(
        "feed-says-a-position-that-it-has-not-sent",
        "A5",
        "the position of an update is that of its last change",
        (
            Edit(
                AssignmentFeed,
                "_advance_by_recent",
                "self._position if is_all else changes[-1].position",
                "self._position",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-repeats-a-record",
        "A5",
        "resuming inside a record sends only what is behind the position",
        (Edit(AssignmentFeed, "_advance_by_log", "if change.position > subscription.cursor", ""),),
        _FEED,
    ),
    Mutant(
        "feed-forgets-and-remembers-its-floor",
        "A5",
        "changes that are forgotten raise the floor",
        (
            Edit(
                AssignmentFeed,
                "_on_commit",
                "self._floor = self._recent[-ASSIGNMENT_BACKLOG_MAX - 1].position",
                "pass",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-knows-what-it-did-not-decode",
        "A5",
        "what happens while nobody listens is read from the log later",
        (
            Edit(
                AssignmentFeed,
                "_on_commit",
                "self._recent.clear()\n        self._floor = self._position",
                "self._recent.clear()",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-remembers-every-change",
        "A5",
        "a bounded number of changes is remembered",
        (
            Edit(
                AssignmentFeed,
                "_on_commit",
                "len(self._recent) > 2 * ASSIGNMENT_BACKLOG_MAX",
                "False",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-tells-later-what-ends-an-answer",
        "A5",
        "what ends an answer is told at once",
        (
            Edit(
                AssignmentFeed,
                "_on_commit",
                "if replaced or self._effective.has_waits:",
                "if self._effective.has_waits:",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "feed-tells-later-what-is-waited-for",
        "A4",
        "what somebody waits for is told at once",
        (
            Edit(
                AssignmentFeed,
                "_on_commit",
                "if replaced or self._effective.has_waits:",
                "if replaced:",
            ),
        ),
        _FEED,
    ),
    Mutant(
        "leased-watch-begins-without-a-reset",
        "V9",
        "a watch without a position knows nothing of before",
        (Edit(LeasedWatch, "take_update", "update.reset or not self._is_resumed", "update.reset"),),
        _LEASED,
    ),
    Mutant(
        "leased-watch-outlives-leadership",
        "V9, L19",
        "a watch ends when leadership cannot be confirmed",
        (Edit(LeasedWatch, "_confirm", "self._subscription.fail(error)", "pass"),),
        _LEASED,
    ),
    Mutant(
        "leased-watch-sends-all-the-time",
        "V9",
        "an update is sent when one is due",
        (Edit(LeasedWatch, "take_update", "if not self._is_due:", "if False:"),),
        _LEASED,
    ),
    Mutant(
        "discovery-counts-from-the-answer",
        "A5, L19",
        "the time of a lease counts from the question, whatever held the answer up",
        (
            Edit(
                LeasedAssignments,
                "_renew",
                "(confirmed_at_ms + usable_ms) / 1_000",
                "self._heard_at + usable_ms / 1_000",
            ),
        ),
        _LEASED,
    ),
    Mutant(
        "discovery-answers-behind-a-reset",
        "A5",
        "a reset takes every answer away at once",
        (
            Edit(
                LeasedAssignments,
                "on_reset",
                "self._cache.reset(self.shard_id, self._cache.position(self.shard_id))",
                "pass",
            ),
        ),
        _LEASED,
    ),
    Mutant(
        "discovery-begins-anew-behind-the-present",
        "A5",
        "behind a reset the changes are known from its position on",
        (Edit(LeasedAssignments, "on_position", "if self._begins_anew:", "if False:"),),
        _LEASED,
    ),
)

MUTANTS = (*_FEED_MUTANTS, *_CACHE_MUTANTS, *_ABSENT_MUTANTS, *_TURN_MUTANTS)
