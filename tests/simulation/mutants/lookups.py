"""The guards of lookups' answers: leased watches of a shard, and the cache of a discovery node."""

from __future__ import annotations

from discovery.adapters.servers.loop_turns import LoopTurns
from discovery.adapters.servers.pulsar_connection import DiscoveryConnection
from discovery.adapters.shard_changes.leased_assignments import LeasedAssignments
from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache, Delta
from discovery.domain.answer_store import AnswerStore
from discovery.service.lookups.line import LookupLine
from discovery.service.lookups.lookup import LookupService
from discovery.service.lookups.shard_lookups import ShardLookups
from shards.assignment.topic_controller import TopicController
from shards.inventory.topic_creation import TopicCreation
from shards.watches import change_watch
from shards.watches.change_delivery import Delivery
from shards.watches.change_hub import ChangeHub
from shards.watches.change_lease import LeasedWatch
from shards.watches.change_stream import ChangeStream
from shards.watches.change_watch import Selection
from shards.watches.effective_writes import EffectiveWrites
from shards.wire import leased_form
from tests.simulation.mutants.mutant import Edit, Mutant

_FRESHNESS = "tests/unit/discovery/service/test_lookup_freshness.py"
_CACHE = ("tests/unit/discovery/domain/test_answer_cache.py",)
_STORE = ("tests/unit/discovery/domain/test_answer_store.py",)
_LEASE = (
    "tests/unit/shards/watches/test_change_lease.py",
    "tests/unit/shards/watches/test_lease_waits.py",
    "tests/unit/shards/watches/test_leased_watch.py",
    "tests/unit/shards/watches/test_named_creations.py",
)
_LEASED = (
    "tests/unit/shards/watches/test_leased_watch.py",
    "tests/unit/discovery/adapters/test_leased_assignments.py",
    "tests/unit/shards/watches/test_acknowledged_watches.py",
    "tests/unit/shards/watches/test_change_stream.py",
)
_AHEAD = ("tests/unit/shards/assignment/test_assigned_ahead.py",)

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
        "an answer is given by another spelling until its time is over as well",
        (Edit(AnswerCache, "_otherwise", " and entry[1].until > now", ""),),
        _CACHE,
    ),
    Mutant(
        "cache-routes-after-its-time",
        "A5",
        "a route is given until its time is over",
        (Edit(AnswerCache, "route", " or permit.until <= now", ""),),
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
        (Edit(AnswerStore, "put", "self.remove(topic)", "pass"),),
        _STORE,
    ),
    Mutant(
        "cache-looks-at-the-young-only",
        "A5",
        "a change also takes away an answer that was not used lately",
        (Edit(AnswerStore, "peek", " or self._old.get(topic)", ""),),
        _CACHE,
    ),
    Mutant(
        "cache-grows-without-bound",
        "A5",
        "a bounded number of answers is kept",
        (Edit(AnswerStore, "put", "len(self) >= self._answers_max", "False"),),
        _CACHE,
    ),
    Mutant(
        "cache-keeps-at-hand-what-it-removed",
        "A5",
        "an answer that is replaced or outdated is not at hand any more",
        (Edit(AnswerStore, "remove", "self.at_hand.pop(topic, None)", "pass"),),
        (*_CACHE, *_STORE),
    ),
    Mutant(
        "cache-keeps-at-hand-what-it-gives-up",
        "A5",
        "an answer that is dropped is not at hand any more",
        (Edit(AnswerStore, "_evict", "self.at_hand.pop", "self.at_hand.get"),),
        _STORE,
    ),
    Mutant(
        "cache-shares-between-permits",
        "A5, A6",
        "an answer depends on the permit of its own shard and session",
        (
            Edit(
                AnswerStore, "_share", "self._tags.get((permit, common))", "self._tags.get(common)"
            ),
            Edit(
                AnswerStore,
                "_share",
                "self._tags[permit, common] = tag",
                "self._tags[common] = tag",
            ),
        ),
        _STORE,
    ),
    Mutant(
        "cache-gives-a-tag-away-that-is-in-use",
        "A5",
        "a common part is kept as long as an answer refers to it",
        (Edit(AnswerStore, "_release", "if not shared.uses:", "if True:"),),
        _STORE,
    ),
    Mutant(
        "cache-mistakes-a-length-for-its-mark",
        "A5",
        "an answer comes back byte for byte, whatever its length is",
        (Edit(AnswerStore, "_packed", "_MARK in answer[:start] or ", ""),),
        _STORE,
    ),
    Mutant(
        "cache-keeps-what-left-its-shard",
        "A5",
        "an answer about a topic that left the shard is not given",
        (Edit(AnswerCache, "_inherited", "if has_left(facts):", "if False:"),),
        _CACHE,
    ),
    Mutant(
        "cache-takes-answers-from-before-a-release",
        "A5",
        "an answer from before a release of slots is not taken in",
        (Edit(AnswerCache, "release", "max(shard.floor, position)", "shard.floor"),),
        _CACHE,
    ),
    Mutant(
        "cache-renews-nothing-behind-a-release",
        "A5",
        "what stays at the shard is renewed and ended as before the release",
        (Edit(AnswerCache, "release", "shard.permits[session_id] = heir", "pass"),),
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
        (Edit(AbsentNames, "find", "shard.until <= now or ", ""),),
        _ABSENT,
        (("cluster", 10),),
    ),
    Mutant(
        "absence-of-a-shard-that-is-not-in-use",
        "A15",
        "an absence is given while the shard names its creations soon",
        (Edit(AbsentNames, "find", " or shard.used_until <= now", ""),),
        _ABSENT,
    ),
    Mutant(
        "absence-outlives-the-scalable-topic",
        "A15",
        "a scalable topic ends the absence of its persistent name",
        (Edit(AbsentNames, "_end", "if name.startswith(_SCALABLE):", "if False:"),),
        _ABSENT,
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

_LEASE_MUTANTS = (
    Mutant(
        "lease-goes-on-when-it-is-lost",
        "A4",
        "a lease that is lost ends its watch",
        (Edit(LeasedWatch, "fail", "self._stream.end_watch(self.watch, error)", "pass"),),
        _LEASE,
    ),
    Mutant(
        "lease-prolongs-what-was-asked-later",
        "L19",
        "a confirmation is of the questions that came before it",
        (
            Edit(
                LeasedWatch, "_confirm", "(position, asked_at_ms)", "(position, self._asked_at_ms)"
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-confirms-at-what-the-hub-has-seen",
        "L19",
        "a confirmation counts what was committed, and not only what the hub has seen",
        (
            Edit(
                LeasedWatch,
                "_confirm",
                "position = self._source.log.commit_position",
                "position = self._source.position",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-confirms-without-a-majority",
        "L19",
        "a majority confirms the leader before anything is prolonged",
        (
            Edit(
                LeasedWatch,
                "_confirm",
                "await self._source.log.read_index(asked_at=self._asked_at)",
                "await asyncio.sleep(0)",
            ),
        ),
        _LEASE,
        (("cluster", 6),),
    ),
    Mutant(
        "lease-takes-an-acknowledgement-back",
        "A4",
        "what a subscriber acknowledged stays acknowledged",
        (Edit(LeasedWatch, "renew", "if renew.acked_position > self.acked:", "if True:"),),
        _LEASE,
    ),
    Mutant(
        "lease-is-held-twice",
        "A4",
        "an older stream of the same subscriber ends",
        (Edit(ChangeHub, "open", "if older is not None:", "if False:"),),
        _LEASE,
    ),
    Mutant(
        "lease-for-any-number-of-subscribers",
        "A4",
        "a shard has a bounded number of leased watches",
        (
            Edit(
                ChangeStream,
                "_add_lease",
                "len(self._source.leased) >= ASSIGNMENT_SUBSCRIBERS_MAX",
                "False",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-believes-in-the-future",
        "A4",
        "changes not sent yet do not count as acknowledged",
        (
            Edit(
                LeasedWatch,
                "_begin",
                "self.acked = self.position",
                "self.acked = max(position, present)",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-waits-for-one-who-is-back",
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
        _LEASE,
    ),
    Mutant(
        "lease-ends-with-an-older-stream",
        "A4",
        "the end of an older stream ends no later subscription",
        (
            Edit(
                ChangeHub,
                "leave",
                "self._streams.get(stream.subscriber_id) is not stream",
                "stream.subscriber_id not in self._streams",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-is-forgotten-with-its-stream",
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
        _LEASE,
        (("cluster", 12),),
    ),
    Mutant(
        "lease-of-an-earlier-leader-does-not-count",
        "A4, PO5",
        "a new leader waits one time-to-live for the subscribers of the earlier one",
        (Edit(EffectiveWrites, "_is_effective", "now < self._leads_from", "False"),),
        _LEASE,
        (("cluster", 12),),
    ),
    Mutant(
        "lease-is-not-waited-for",
        "A4",
        "a position is effective when every subscriber has acknowledged it",
        (
            Edit(
                EffectiveWrites, "_is_awaited", "is_lost = waiter.are_leases_over", "is_lost = True"
            ),
        ),
        _LEASE,
        (("cluster", 12),),
    ),
    Mutant(
        "lease-of-one-who-left-is-not-waited-for",
        "A4",
        "a subscriber that left has acknowledged the position, or its time is over",
        (
            Edit(
                EffectiveWrites,
                "_is_missed",
                "not waiter.are_leases_over and not left.stream",
                "False and not left.stream",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-is-waited-for-for-ever",
        "A4",
        "a wait ends within one time-to-live",
        (Edit(EffectiveWrites, "_settle", "now >= waiter.lease_ends", "False"),),
        _LEASE,
    ),
    Mutant(
        "lease-of-the-silent-goes-on",
        "A4",
        "a subscriber that is silent for one time-to-live is cut off",
        (Edit(EffectiveWrites, "_settle", "self._cut_off(waiter)", "pass"),),
        _LEASE,
    ),
    Mutant(
        "lease-is-cut-off-before-its-time-is-over",
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
        _LEASE,
    ),
    Mutant(
        "lease-is-cut-off-though-it-was-acknowledged",
        "A4",
        "only a subscriber that has not acknowledged is cut off",
        (
            Edit(
                EffectiveWrites,
                "_cut_off",
                "each.is_leased and not each.stream.has_taken_in(waiter.changes, waiter.position)",
                "each.is_leased",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-leaves-what-waits",
        "L3",
        "what waits when leadership ends is refused",
        (Edit(EffectiveWrites, "close", "waiter.future.set_exception(error)", "pass"),),
        _LEASE,
    ),
    Mutant(
        "lease-covers-no-more-than-it-names",
        "A4",
        "a lease covers what its answers follow from",
        (Edit(Selection, "may_depend_on", "return True", "return False"),),
        _LEASE,
    ),
    Mutant(
        "lease-covers-no-topic-above-its-prefix",
        "A4",
        "a lease covers the topics that its units follow from",
        (Edit(Selection, "may_depend_on", " or self.prefix.startswith(each)", ""),),
        _LEASE,
    ),
    Mutant(
        "lease-covers-every-assignment",
        "A4",
        "a move waits for the leases that cover it alone",
        (Edit(Selection, "may_depend_on", "kind in self.kinds and self._selects(name)", "True"),),
        _LEASE,
    ),
    Mutant(
        "lease-names-some-creations",
        "A15",
        "creations are named where the filter has every topic of its units",
        (
            Edit(
                change_watch,
                "_check_creations",
                "if not is_whole or KIND_TOPIC in add.kinds:",
                "if False:",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-goes-on-for-one-who-is-ahead",
        "A5",
        "a subscriber from the future is reset",
        (Edit(LeasedWatch, "_begin", "0 < position <= present", "0 < position"),),
        _LEASE,
    ),
    Mutant(
        "lease-leaves-a-gap",
        "A5",
        "what is not offered any more is read from the log",
        (Edit(Delivery, "start", "position < self._source.log.commit_position", "False"),),
        _LEASE,
    ),
    Mutant(
        "lease-does-not-send-what-is-left",
        "A5",
        "what does not fit an update follows at once",
        (
            Edit(
                Delivery,
                "_send",
                "0.0 if self._backlog else self._next_due_at()",
                "self._next_due_at()",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-claims-a-position-that-it-has-not-sent",
        "A5",
        "the position of an update is that of its last event",
        (
            Edit(
                Delivery,
                "position",
                "self._first_position(self._backlog[0]) - 1",
                "self._source.position",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-claims-creations-that-it-has-not-named",
        "A15",
        "an update names every creation up to its position",
        (
            Edit(
                LeasedWatch,
                "_first_position",
                "sent.first_position if isinstance(sent, Creations) else sent.position",
                "sent.position",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-repeats-a-record",
        "A5",
        "a page that begins inside a record has only what is behind the position",
        (Edit(Delivery, "read_page", "if event.position > self._scanned", "if True"),),
        _LEASE,
    ),
    Mutant(
        "lease-skips-what-it-drops",
        "A5",
        "a backlog that is dropped is read from the log",
        (
            Edit(
                Delivery,
                "fall_behind",
                "self._scanned = self.position",
                "self._scanned = self._source.position",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-keeps-every-event",
        "A5",
        "a bounded number of events waits for a subscriber",
        (
            Edit(
                Delivery,
                "_add",
                "self._backlog_events + events > WATCH_BACKLOG_EVENTS_MAX",
                "False",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-sends-later-what-ends-an-answer",
        "A5",
        "what ends an answer is sent at once",
        (
            Edit(
                leased_form,
                "_form",
                "UNTIL_THE_NEXT_UPDATE if is_first else 0.0",
                "UNTIL_THE_NEXT_UPDATE",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-sends-later-what-is-waited-for",
        "A4",
        "what a move waits for is sent at once",
        (
            Edit(
                EffectiveWrites, "_wait_acknowledged", "subscriber.stream.prompt(position)", "pass"
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "lease-forgets-what-is-waited-for",
        "A4",
        "what is waited for is sent when the hub gets there",
        (Edit(Delivery, "send_at", "self._source.waiters.add(self)", "pass"),),
        _LEASE,
    ),
    Mutant(
        "lease-is-silent-while-it-catches-up",
        "A5",
        "a subscriber that catches up hears of its stream",
        (Edit(Delivery, "send_at", "if not self.is_lagging:\n            return", "return"),),
        _LEASE,
    ),
    Mutant(
        "leased-watch-begins-without-a-reset",
        "V9",
        "a watch without a position knows nothing of before",
        (
            Edit(
                LeasedWatch,
                "_begin",
                "self._begins_anew = not is_resumed",
                "self._begins_anew = False",
            ),
        ),
        _LEASE,
    ),
    Mutant(
        "leased-watch-outlives-leadership",
        "V9, L19",
        "a watch ends when leadership cannot be confirmed",
        (Edit(LeasedWatch, "_confirm", "self.fail(error)", "pass"),),
        _LEASE,
    ),
    Mutant(
        "leased-watch-sends-all-the-time",
        "V9",
        "an update is sent when one is due",
        (Edit(LeasedWatch, "_next_due_at", "NOT_DUE", "0.0"),),
        _LEASE,
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
        "discovery-answers-for-slots-that-left",
        "A5",
        "a release of slots ends the answers about them",
        (
            Edit(
                LeasedAssignments,
                "on_events",
                "self._cache.release(self.shard_id, event.position, left)",
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

_AHEAD_MUTANTS = (
    Mutant(
        "fails-creations-with-their-assignments",
        "PL9",
        "a topic is created on demand though its units cannot be assigned at this moment",
        (
            Edit(
                TopicController,
                "assign_ahead",
                "except MetadataError as error:",
                "except ZeroDivisionError as error:",
            ),
        ),
        _AHEAD,
    ),
    Mutant(
        "assigns-ahead-to-any-broker",
        "PL7",
        "the broker whose client creates a topic gets it, though it is assigned before its lookup",
        (
            Edit(
                TopicCreation,
                "_create",
                "self._assign_units(created, command.preferred_broker_id)",
                'self._assign_units(created, "")',
            ),
        ),
        _AHEAD,
    ),
)

MUTANTS = (
    *_LEASE_MUTANTS,
    *_CACHE_MUTANTS,
    *_ABSENT_MUTANTS,
    *_TURN_MUTANTS,
    *_AHEAD_MUTANTS,
)
