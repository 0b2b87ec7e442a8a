"""The guards of effective writes: which subscribers they wait for, and until when."""

from __future__ import annotations

from shards.sessions.pending_deliveries import PendingDeliveries, PendingDelivery
from shards.watches.effective_writes import EffectiveWrites
from shards.watches.expected_readers import ExpectedReaders
from shards.watches.expecting_managers import ExpectingManagers
from shards.watches.returning_managers import ManagerRollCall, ReturningManagers
from tests.simulation.mutants.mutant import Edit, Mutant

_SHARDS = "tests/unit/shards/"
_WRITES = (
    _SHARDS + "watches/test_effective_writes.py",
    _SHARDS + "watches/test_acknowledged_watches.py",
)
_READERS = (
    _SHARDS + "watches/test_expected_readers.py",
    _SHARDS + "watches/test_effective_writes.py",
)
_MANAGERS = (
    _SHARDS + "watches/test_expecting_managers.py",
    _SHARDS + "watches/test_effective_decisions.py",
)
_DELIVERIES = (_SHARDS + "sessions/test_pending_deliveries.py",)
_RETURNING = (
    _SHARDS + "watches/test_returning_managers.py",
    _SHARDS + "watches/test_effective_writes.py",
)

_WRITE_MUTANTS = (
    Mutant(
        "effective-under-a-new-leader",
        "PO5",
        "a new leader answers nothing for one time-to-live",
        (
            Edit(EffectiveWrites, "_is_effective", "now < self._leads_from", "False"),
            Edit(EffectiveWrites, "_is_effective", "now < self._counts_from or ", ""),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-without-who-left",
        "PO5",
        "a subscriber whose stream broke counts for a while",
        (
            Edit(
                EffectiveWrites,
                "_is_effective",
                "until > now and self._is_missed(each, waiter)",
                "False",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-without-subscribers",
        "PO4",
        "every subscriber that wants the name has taken it in",
        (Edit(EffectiveWrites, "_is_effective", "waiter.blocker is not None", "False"),),
        _WRITES,
        (("cluster", 12),),
    ),
    Mutant(
        "effective-without-expected-readers",
        "PO7",
        "a reader that has the metadata and has not subscribed yet is waited for",
        (
            Edit(
                EffectiveWrites,
                "_is_effective",
                "self._readers.are_over(waiter.changes, now)",
                "True",
            ),
        ),
        _WRITES,
        (("cluster", 12),),
    ),
    Mutant(
        "effective-waits-for-the-silent-for-ever",
        "PO5",
        "a silent subscriber counts until its lease ends",
        (Edit(EffectiveWrites, "_is_awaited", "subscriber.counts_until <= now", "False"),),
        _WRITES,
    ),
    Mutant(
        "effective-believes-one-who-comes-back",
        "PO5",
        "a returned subscriber is known once it has added its watches",
        (Edit(EffectiveWrites, "_is_awaited", "not subscriber.is_known", "False"),),
        _WRITES,
    ),
    Mutant(
        "effective-takes-who-returns-for-new",
        "PO5",
        "a known subscriber adds its watches one by one",
        (Edit(EffectiveWrites, "join", "known is None and departed is None", "True"),),
        _WRITES,
    ),
    Mutant(
        "effective-hears-an-older-stream",
        "PO5",
        "an older stream of a subscriber says nothing any more",
        (
            Edit(
                EffectiveWrites,
                "note_heard",
                "self._subscribers.get(subscriber.stream.subscriber_id) is not subscriber",
                "False",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-loses-a-newer-stream",
        "PO5",
        "the end of an older stream is not that of the newer",
        (
            Edit(
                EffectiveWrites,
                "note_left",
                "self._subscribers.get(subscriber_id) is not subscriber",
                "False",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-forgets-a-read-that-is-not-watched",
        "PO7",
        "a read counts until it is watched",
        (Edit(EffectiveWrites, "note_heard", "if subscriber.is_watching(change):", "if True:"),),
        _WRITES,
    ),
    Mutant(
        "effective-forgets-a-watch-that-was-ended",
        "PO5",
        "a watch that was ended here counts for one time-to-live",
        (
            Edit(
                EffectiveWrites,
                "note_lost",
                "max(self._counts_from, self._clock.monotonic() + _TTL_SECONDS)",
                "self._counts_from",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-forgets-an-expectation-too-early",
        "PO7",
        "a subscriber counts from its watch on, for the time of the expectation",
        (
            Edit(
                EffectiveWrites,
                "note_watched",
                "subscriber.heard_at = self._clock.monotonic()",
                "pass",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-counts-managers-as-others",
        "PO5",
        "a broker manager counts until its successor can know what brokers hold",
        (
            Edit(
                EffectiveWrites,
                "stop_expecting",
                "_counted_s(is_manager=True)",
                "_counted_s(is_manager=False)",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-waits-though-it-was-watched",
        "PO7",
        "what was watched before it came is not waited for any longer",
        (Edit(EffectiveWrites, "stop_expecting", "now if are_watched else ", ""),),
        _WRITES,
    ),
    Mutant(
        "effective-forgets-readers-beyond-the-bound",
        "PO7",
        "a reader that is forgotten is waited for by every write",
        (
            Edit(
                EffectiveWrites,
                "_wait_for_forgotten",
                "max(self._counts_from, until)",
                "self._counts_from",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-does-not-prompt-who-reads",
        "PO7",
        "a subscriber that reads an object it watches is prompted",
        (Edit(EffectiveWrites, "expect_reader", "subscriber.stream.prompt()", "pass"),),
        _WRITES,
    ),
    Mutant(
        "effective-without-a-majority",
        "PO5, L19",
        "leadership is confirmed behind the wait",
        (Edit(EffectiveWrites, "wait", "await self._leadership.read_index()", "pass"),),
        _WRITES,
    ),
    Mutant(
        "effective-without-leased-subscribers",
        "PO4",
        "leased subscribers are waited for",
        (
            Edit(
                EffectiveWrites, "_is_awaited", "is_lost = waiter.are_leases_over", "is_lost = True"
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-refuses-definitely",
        "L3",
        "what is committed and not known to be effective is indefinite",
        (Edit(EffectiveWrites, "wait", "raise ProposalLost(", "raise Overloaded("),),
        _WRITES,
    ),
    Mutant(
        "effective-after-its-term",
        "L3",
        "a leader whose term is over answers nothing as effective",
        (Edit(EffectiveWrites, "_wait_acknowledged", "if self._closed is not None:", "if False:"),),
        _WRITES,
    ),
    Mutant(
        "effective-writes-wait-without-bound",
        "PO5",
        "the writes that wait are bounded",
        (
            Edit(
                EffectiveWrites,
                "wait",
                "self.waiting >= EFFECTIVE_WAITS_MAX",
                "False",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-waits-for-what-was-refused",
        "PO5",
        "what was refused is not waited for",
        (Edit(EffectiveWrites, "wait_all", "if not result.rejection_code", ""),),
        _WRITES,
    ),
    Mutant(
        "effective-looks-at-one-who-does-not-block",
        "PO5",
        "writes that wait for a subscriber are examined when it is heard",
        (
            Edit(
                EffectiveWrites,
                "_settle",
                "waiter.blocker not in (None, heard)",
                "waiter.blocker is not heard",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-looks-at-nobody-again",
        "PO5",
        "a wait ends by itself when what it waits for is over",
        (
            Edit(
                EffectiveWrites,
                "_schedule",
                "self._timer = self._clock.call_at(min(later), self.settle)",
                "pass",
            ),
        ),
        _WRITES,
    ),
    Mutant(
        "effective-prompts-nobody",
        "PO4",
        "a subscriber that has to take a write in is sent its position at once",
        (
            Edit(
                EffectiveWrites,
                "_wait_acknowledged",
                "if self._is_awaited(subscriber, waiter, now):",
                "if False:",
            ),
        ),
        _WRITES,
    ),
)

_READER_MUTANTS = (
    Mutant(
        "readers-end-with-the-first-answer",
        "PO7",
        "what is given twice is expected until both are answered",
        (Edit(ExpectedReaders, "end", "if self._requests[change, reader]:", "if False:"),),
        _READERS,
    ),
    Mutant(
        "readers-expect-who-watched-meanwhile",
        "PO7",
        "a reader that subscribed meanwhile is not expected",
        (Edit(ExpectedReaders, "end", "if not self._arrived(change, reader):", "if False:"),),
        _READERS,
    ),
    Mutant(
        "readers-forget-what-was-given",
        "PO7",
        "what was given is expected to be watched for a while",
        (Edit(ExpectedReaders, "end", "if until > now:", "if False:"),),
        _READERS,
    ),
    Mutant(
        "readers-are-not-bounded",
        "PO7",
        "expected readers are bounded",
        (Edit(ExpectedReaders, "note", "len(self._until) <= self._names_max", "True"),),
        _READERS,
    ),
    Mutant(
        "readers-forget-the-latest",
        "PO7",
        "what was noted longest ago is forgotten first",
        (Edit(ExpectedReaders, "note", "self._until.move_to_end(change)", "pass"),),
        _READERS,
    ),
    Mutant(
        "readers-keep-what-is-over",
        "PO7",
        "what is over is forgotten before what is not",
        (
            Edit(
                ExpectedReaders,
                "note",
                "while self._until and _last(self._until[next(iter(self._until))]) <= now:",
                "while False:",
            ),
        ),
        _READERS,
    ),
    Mutant(
        "readers-forget-what-is-on-its-way",
        "PO7",
        "what is on its way is expected until it was given",
        (Edit(ExpectedReaders, "ends", "if change in self._on_the_way:", "if False:"),),
        _READERS,
    ),
)

_MANAGER_MUTANTS = (
    Mutant(
        "managers-are-given-what-nobody-expects",
        "PO7",
        "metadata on its way to a broker manager is expected to be watched",
        (
            Edit(
                ExpectingManagers,
                "assign",
                "self._effective.expect(changes, shard_id)",
                "self._effective.expect((), shard_id)",
            ),
            Edit(
                ExpectingManagers,
                "assign",
                "self._effective.stop_expecting(changes,",
                "self._effective.stop_expecting((),",
            ),
        ),
        _MANAGERS,
        (("cluster", 12),),
    ),
    Mutant(
        "managers-are-given-what-was",
        "PO7",
        "assignments leave with their topics as they are",
        (Edit(ExpectingManagers, "assign", "await self._bring_up_to_date(request)", "pass"),),
        _MANAGERS,
    ),
    Mutant(
        "managers-are-given-a-namesake",
        "PO7",
        "a topic is the one of its id",
        (
            Edit(
                ExpectingManagers,
                "_bring_up_to_date",
                " or topic.topic_id != each.topic.topic_id",
                "",
            ),
        ),
        _MANAGERS,
    ),
    Mutant(
        "managers-are-given-an-older-version",
        "PO7",
        "no topic leaves in an earlier version than it was decided by",
        (
            Edit(
                ExpectingManagers,
                "_bring_up_to_date",
                "topic.version > each.topic.version",
                "topic.version != each.topic.version",
            ),
        ),
        _MANAGERS,
    ),
    Mutant(
        "managers-are-given-what-is-not-committed",
        "C2",
        "a broker is sent nothing that a later leader may not have",
        (
            Edit(
                ExpectingManagers,
                "_bring_up_to_date",
                "await self._state.proposer.confirm()",
                "pass",
            ),
        ),
        _MANAGERS,
    ),
    Mutant(
        "managers-are-back-before-the-map",
        "PO5",
        "before the map is known there may be any manager",
        (
            Edit(
                ReturningManagers,
                "are_back",
                "(self._expected is not None and not self._expected)",
                "not self._expected",
            ),
        ),
        _RETURNING,
    ),
    Mutant(
        "managers-are-waited-for-without-end",
        "PO5",
        "the wait for managers ends",
        (Edit(ReturningManagers, "are_back", "now >= self.until or ", ""),),
        _RETURNING,
    ),
    Mutant(
        "managers-are-back-by-an-earlier-term",
        "PO5",
        "an acknowledgement of an earlier term brings no manager back",
        (Edit(ReturningManagers, "note_complete", "complete_term < self._term or ", ""),),
        _RETURNING,
    ),
    Mutant(
        "managers-are-back-that-follow-something",
        "PO5",
        "a manager that follows something is back when it watches all of it",
        (Edit(ManagerRollCall, "_ask", "if not response.follows:", "if True:"),),
        _RETURNING,
    ),
    Mutant(
        "managers-are-asked-for-ever",
        "PO5",
        "a manager is asked as long as it is expected",
        (
            Edit(
                ManagerRollCall,
                "_is_expected",
                "self._effective.returning.is_expected(shard_id, self._monotonic())",
                "True",
            ),
        ),
        _RETURNING,
    ),
)

_DELIVERY_MUTANTS = (
    Mutant(
        "pending-deliveries-of-ended-sessions",
        "PO6",
        "an ended session has no pending delivery",
        (Edit(PendingDelivery, "is_done", "self.session.ended is not None", "False"),),
        _DELIVERIES,
    ),
    Mutant(
        "deliveries-are-done-without-a-place",
        "PO6",
        "a change without a place in the sequence is pending",
        (
            Edit(
                PendingDelivery,
                "is_done",
                "self.sequence is not None and self.sequence <= self.session.acked",
                "self.sequence is None or self.sequence <= self.session.acked",
            ),
        ),
        _DELIVERIES,
    ),
    Mutant(
        "deliveries-are-done-when-sent",
        "PO6",
        "a change counts for a broker once it has synced it",
        (
            Edit(
                PendingDelivery,
                "is_done",
                "self.sequence <= self.session.acked",
                "self.sequence <= self.session.sequence",
            ),
        ),
        _DELIVERIES,
    ),
    Mutant(
        "deliveries-are-in-effect-one-too-far",
        "PO6",
        "changes are in effect up to the first pending delivery",
        (
            Edit(
                PendingDeliveries, "in_effect", "delivery.position - 1 for", "delivery.position for"
            ),
        ),
        _DELIVERIES,
    ),
    Mutant(
        "deliveries-are-kept-when-done",
        "PO6",
        "done deliveries are pruned without a read",
        (Edit(PendingDeliveries, "add", "len(self._pending) >= self._pruned_at", "False"),),
        _DELIVERIES,
    ),
    Mutant(
        "deliveries-are-pruned-each-time",
        "PO6",
        "pending deliveries are pruned when they have doubled",
        (Edit(PendingDeliveries, "add", "max(_PRUNED_AT_MIN, 2 * len(self._pending))", "0"),),
        _DELIVERIES,
    ),
)

MUTANTS = (*_WRITE_MUTANTS, *_READER_MUTANTS, *_MANAGER_MUTANTS, *_DELIVERY_MUTANTS)
