"""The guards of broker sessions: their rules, their manager, and the broker's own side."""

from __future__ import annotations

from brokers.domain.session import BrokerSession
from brokers.service.session.agent import BrokerAgent
from shards.domain import broker_session as rules
from shards.sessions import session_hello
from shards.sessions.broker_sessions import BrokerSessions
from shards.sessions.metadata_watch import MetadataWatch
from shards.sessions.session_metadata import SessionMetadata
from shards.sessions.session_soft_state import SessionSoftState
from tests.simulation.mutants.mutant import Edit, Mutant

_SHARDS = "tests/unit/shards/"
_RULES = (_SHARDS + "domain/test_broker_session.py",)
_SESSIONS = (
    _SHARDS + "sessions/test_broker_sessions.py",
    _SHARDS + "sessions/test_broker_manager.py",
    _SHARDS + "assignment/test_broker_capacity.py",
)
_SOFT = (_SHARDS + "sessions/test_session_soft_state.py", *_SESSIONS)
_METADATA = (
    _SHARDS + "sessions/test_session_metadata.py",
    _SHARDS + "assignment/test_broker_capacity.py",
    _SHARDS + "sessions/test_metadata_watch.py",
)
_FOLLOWED = (
    _SHARDS + "sessions/test_metadata_watch_limits.py",
    _SHARDS + "watches/test_followed_metadata.py",
)
_HELLO = (_SHARDS + "sessions/test_session_hello.py", *_SESSIONS)
_BROKER = ("tests/unit/brokers/domain/test_session.py",)
_AGENT = ("tests/unit/brokers/service/session/test_agent.py",)

_RULE_MUTANTS = (
    Mutant(
        "session-with-any-capacity",
        "A7",
        "a broker says no capacity beyond the limit",
        (
            Edit(
                rules,
                "_decide_establish",
                "not 0 <= command.capacity_units <= BROKER_CAPACITY_UNITS_MAX",
                "False",
            ),
        ),
        _RULES,
    ),
    Mutant(
        "session-epoch-stands-still",
        "A3",
        "each session of a broker has the next epoch",
        (Edit(rules, "_decide_establish", "session.epoch + 1", "session.epoch"),),
        _RULES,
    ),
    Mutant(
        "session-that-ended-returns",
        "A6",
        "a session that ended never returns",
        (
            Edit(
                rules,
                "_decide_establish",
                "if session.is_live else _expired(command.broker_id, session.session_id)",
                "",
            ),
        ),
        _RULES,
    ),
    Mutant(
        "session-ends-without-an-event",
        "A6",
        "a live session is ended by its successor, in the log",
        (
            Edit(
                rules,
                "_decide_establish",
                "(_ended(session, REASON_REPLACED), established)",
                "(established,)",
            ),
        ),
        _RULES,
    ),
    Mutant(
        "session-is-ended-by-another",
        "A6",
        "the end of an earlier session does not end the present one",
        (Edit(rules, "_decide_end", "session.session_id != command.session_id or ", ""),),
        _RULES,
    ),
    Mutant(
        "session-ends-twice",
        "A6",
        "a session ends once",
        (Edit(rules, "_decide_end", " or not session.is_live", ""),),
        _RULES,
    ),
    Mutant(
        "session-grants-after-its-end",
        "A7",
        "a session that ended is granted nothing",
        (Edit(rules, "_decide_grant", " or not session.is_live", ""),),
        _RULES,
    ),
    Mutant(
        "session-grants-for-another",
        "A7",
        "a grant is of the session that it names",
        (Edit(rules, "_decide_grant", " or session.session_id != command.session_id", ""),),
        _RULES,
    ),
    Mutant(
        "session-grants-beyond-its-capacity",
        "A7",
        "no grant exceeds what the broker has",
        (Edit(rules, "_decide_grant", "command.units > session.capacity_units", "False"),),
        _RULES,
    ),
    Mutant(
        "session-takes-a-grant-back",
        "A7",
        "a smaller grant takes nothing back",
        (Edit(rules, "_decide_grant", "command.units <= session.granted_units", "False"),),
        _RULES,
    ),
    Mutant(
        "session-drains-after-its-end",
        "CA7",
        "a session that ended is not drained",
        (Edit(rules, "_decide_drain", " or not session.is_live", ""),),
        _RULES,
    ),
    Mutant(
        "session-drains-for-another",
        "CA7",
        "a drain is of the session that it names",
        (Edit(rules, "_decide_drain", " or session.session_id != command.session_id", ""),),
        _RULES,
    ),
    Mutant(
        "session-drains-at-any-rate",
        "CA7",
        "a drain has at most the highest rate",
        (
            Edit(
                rules,
                "_decide_drain",
                "not 0 <= command.units_per_second <= DRAIN_UNITS_PER_SECOND_MAX",
                "False",
            ),
        ),
        _RULES,
    ),
    Mutant(
        "session-drain-without-revision",
        "CA7",
        "each change of a drain has a revision of its own",
        (Edit(rules, "_decide_drain", "session.revision + 1", "session.revision"),),
        _RULES,
    ),
    Mutant(
        "session-starts-as-often-as-it-likes",
        "CA6",
        "a broker that comes too often is in quarantine",
        (Edit(rules, "_quarantine", "len(recent) >= SESSIONS_STARTED_MAX", "False"),),
        _RULES,
    ),
    Mutant(
        "session-counts-starts-for-ever",
        "CA6",
        "starts are counted within a window",
        (Edit(rules, "_quarantine", "if at_ms - each < QUARANTINE_WINDOW_MS", ""),),
        _RULES,
    ),
    Mutant(
        "session-leaves-its-quarantine",
        "CA6",
        "a quarantine is not got rid of by coming back",
        (
            Edit(
                rules,
                "_quarantine",
                "before.quarantined_until_ms if before.quarantined_until_ms > at_ms else 0",
                "0",
            ),
        ),
        _RULES,
    ),
)

_MANAGER_MUTANTS = (
    Mutant(
        "manager-takes-over-sessions-that-ended",
        "A6",
        "a new leader takes over the sessions that live",
        (Edit(BrokerSessions, "take_over", "if session.is_live and ", "if "),),
        _SESSIONS,
    ),
    Mutant(
        "manager-believes-to-know-what-brokers-hold",
        "CA5",
        "a new leader requests reports of held units",
        (Edit(BrokerSessions, "take_over", ".metadata.awaits_report = True", ""),),
        _SESSIONS,
    ),
    Mutant(
        "manager-waits-for-brokers-that-are-here",
        "A6",
        "the time to come is of brokers that did not come yet",
        (Edit(BrokerSessions, "note_announced", "not session.attached.is_set() and ", ""),),
        _SESSIONS,
    ),
    Mutant(
        "manager-gives-the-time-to-come-again",
        "A6",
        "the time to come is given once",
        (Edit(BrokerSessions, "note_announced", " and session.broken_at is None", ""),),
        _SESSIONS,
    ),
    Mutant(
        "manager-resumes-any-session",
        "A6, V14",
        "a session is resumed only by its own broker, holding what the session was sent",
        (
            Edit(
                BrokerSessions,
                "connect",
                "session is not None and is_resumable(session, hello)",
                "session is not None",
            ),
        ),
        _HELLO,
    ),
    Mutant(
        "manager-hears-a-session-that-is-over",
        "A6",
        "messages on the stream of an ended session do not count",
        (Edit(BrokerSessions, "receive", "session.ended is not None", "False"),),
        _SESSIONS,
    ),
    Mutant(
        "manager-takes-a-page-for-the-report",
        "CA5",
        "held units are known once the whole report has arrived",
        (Edit(BrokerSessions, "_take_report", "not session.metadata.awaits_report", "True"),),
        _SESSIONS,
    ),
    Mutant(
        "manager-takes-the-id-of-another-broker",
        "A6",
        "a session is of the broker that it was begun for",
        (Edit(BrokerSessions, "live", " or session.record.broker_id != broker_id", ""),),
        _SESSIONS,
    ),
    Mutant(
        "manager-goes-on-with-a-session-that-ended-unattached",
        "A6",
        "waiters for a broker that never came are refused",
        (Edit(BrokerSessions, "attached", "session.ended is not None", "False"),),
        _SESSIONS,
    ),
    Mutant(
        "manager-refuses-drains-by-what-is-not-committed",
        "C2",
        "a refused drain waits for what it rests on",
        (
            Edit(
                BrokerSessions,
                "_change",
                "        await self._state.proposer.confirm()\n        raise",
                "        raise",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "manager-takes-an-older-record",
        "CA7",
        "within a session the higher revision is the later",
        (Edit(BrokerSessions, "_change", "record.revision > session.record.revision and ", ""),),
        _SESSIONS,
    ),
    Mutant(
        "manager-begins-a-session-for-each-hello",
        "A6",
        "a repeated registration begins one session",
        (
            Edit(
                BrokerSessions,
                "_begin",
                "earlier is not None and is_same_broker(earlier[0], hello)",
                "False",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "manager-begins-for-who-it-was",
        "A6",
        "a broker that says something else of itself begins another session",
        (Edit(BrokerSessions, "_begin", " and is_same_broker(earlier[0], hello)", ""),),
        _SESSIONS,
    ),
    Mutant(
        "manager-hands-out-a-session-that-ended",
        "A6",
        "a session that ended while it began belongs to no broker",
        (Edit(BrokerSessions, "_begin", "session.ended is not None", "False"),),
        _SESSIONS,
    ),
    Mutant(
        "manager-has-any-number-of-sessions",
        "A6",
        "a shard has a bounded number of sessions",
        (
            Edit(
                BrokerSessions,
                "_establish",
                "len(self._sessions) >= SESSIONS_PER_SHARD_MAX",
                "False",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "manager-keeps-the-session-that-was-replaced",
        "A6",
        "a session that was replaced is over",
        (Edit(BrokerSessions, "_establish", "before is not None and before.is_live", "False"),),
        _SESSIONS,
    ),
    Mutant(
        "manager-adds-a-session-that-was-replaced",
        "A6",
        "of two that register at the same time one is live",
        (
            Edit(
                BrokerSessions,
                "_establish",
                "session is None or session.session_id != session_id",
                "False",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "manager-looks-at-every-plan",
        "A6",
        "each session has one look planned",
        (Edit(BrokerSessions, "_end_overdue", " or session.looked_at_next != when", ""),),
        _SESSIONS,
    ),
    Mutant(
        "manager-counts-its-own-stall-as-absence",
        "A6",
        "a leader that did not run gives brokers their time again",
        (
            Edit(
                BrokerSessions, "_end_overdue", "session.broken_at is not None and is_late", "False"
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "manager-does-not-wait-while-others-come",
        "A6",
        "while brokers still come to a new leader the others are waited for",
        (
            Edit(
                BrokerSessions,
                "_end_overdue",
                "session.broken_at is not None and not session.attached.is_set()",
                "False",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "manager-ends-sessions-before-their-time",
        "A6",
        "a session ends when its time is up",
        (Edit(BrokerSessions, "_end_overdue", "session.deadline > now", "False"),),
        _SESSIONS,
        (("cluster", 6),),
    ),
    Mutant(
        "manager-counts-its-own-stall-as-silence",
        "A6",
        "a leader that did not run looks once more at a silent broker",
        (Edit(BrokerSessions, "_end_overdue", "is_late and session.excuse()", "False"),),
        _SESSIONS,
    ),
    Mutant(
        "manager-tries-once-to-record-an-end",
        "A6",
        "an end that cannot be recorded is tried again",
        (
            Edit(
                BrokerSessions,
                "_end_overdue",
                "self._look_at(session, now + SESSION_TTL_MS / 1000)",
                "pass",
            ),
        ),
        _SESSIONS,
    ),
    Mutant(
        "manager-reports-what-is-being-decided",
        "C2",
        "a session is reported when it is committed",
        (Edit(BrokerSessions, "_report_all", "session.broker_id not in self._undecided", "True"),),
        _SESSIONS,
    ),
    Mutant(
        "manager-reports-though-it-is-deposed",
        "L19",
        "a leader that was deposed reports nothing",
        (Edit(BrokerSessions, "_report_all", "self._state.term.is_over", "False"),),
        _SESSIONS,
    ),
)

_SOFT_STATE_MUTANTS = (
    Mutant(
        "session-outlives-silence-by-a-break",
        "A6",
        "a stream that breaks after long silence adds no time",
        (
            Edit(
                SessionSoftState,
                "deadline",
                "min(silent_until, self.broken_at + patience_ms / 1000)",
                "self.broken_at + patience_ms / 1000",
            ),
        ),
        _SOFT,
    ),
    Mutant(
        "session-ends-before-its-broker-can-come",
        "A6",
        "a broker has longer to come to a new leader than to come back",
        (
            Edit(
                SessionSoftState,
                "deadline",
                "SESSION_RESUME_MS if self.attached.is_set() else SESSION_RETURN_MS",
                "SESSION_RESUME_MS",
            ),
        ),
        _SOFT,
    ),
    Mutant(
        "session-is-excused-for-ever",
        "A6",
        "a silence is excused once",
        (Edit(SessionSoftState, "excuse", " or self._excused_at == self.heard_at", ""),),
        _SOFT,
    ),
    Mutant(
        "session-is-excused-without-a-stream",
        "A6",
        "a broken stream is no silence to be excused",
        (Edit(SessionSoftState, "excuse", "self.broken_at is not None or ", ""),),
        _SOFT,
    ),
    Mutant(
        "session-resumes-behind-what-was-synced",
        "V14",
        "a broker that forgot what it synced does not resume",
        (
            Edit(
                SessionSoftState,
                "can_resume",
                "self.acked <= last_sequence <= self.sequence",
                "last_sequence <= self.sequence",
            ),
            Edit(
                SessionSoftState,
                "attach",
                'assert self.can_resume(last_sequence), "the broker skipped or forgot deliveries"',
                "pass",
            ),
        ),
        _SOFT,
    ),
    Mutant(
        "session-resumes-beyond-what-was-sent",
        "V14",
        "a broker that applied what was never sent does not resume",
        (
            Edit(
                SessionSoftState,
                "can_resume",
                "self.acked <= last_sequence <= self.sequence",
                "self.acked <= last_sequence",
            ),
            Edit(
                SessionSoftState,
                "attach",
                'assert self.can_resume(last_sequence), "the broker skipped or forgot deliveries"',
                "pass",
            ),
        ),
        _SOFT,
    ),
    Mutant(
        "session-asks-again-what-it-knows",
        "CA5",
        "a session that was begun here needs no report",
        (Edit(SessionSoftState, "take_hello", "if self.metadata.awaits_report:", "if True:"),),
        _SOFT,
    ),
    Mutant(
        "session-has-two-connections",
        "V13",
        "a session has one connection",
        (Edit(SessionSoftState, "attach", "if self.connection is not None:", "if False:"),),
        _SOFT,
    ),
    Mutant(
        "session-forgets-its-sequence",
        "V13",
        "a resumed session goes on in its sequence",
        (Edit(SessionSoftState, "attach", "if not self.attached.is_set():", "if True:"),),
        _SOFT,
    ),
    Mutant(
        "session-breaks-by-an-earlier-stream",
        "A6",
        "the end of a stream that was replaced ends nothing",
        (Edit(SessionSoftState, "detach", "self.connection is not connection", "False"),),
        _SOFT,
    ),
    Mutant(
        "session-gives-a-full-broker-more",
        "CA5",
        "no broker is given more units than its capacity",
        (
            Edit(
                SessionSoftState,
                "wait_room",
                "(units is not None and units + added <= capacity_units)",
                "True",
            ),
        ),
        _SOFT,
        (("cluster", 6),),
    ),
    Mutant(
        "session-refuses-what-a-full-broker-has",
        "CA5",
        "what a broker has may be sent again",
        (Edit(SessionSoftState, "wait_room", "not added or ", ""),),
        _SOFT,
    ),
    Mutant(
        "session-refuses-before-it-knows",
        "CA5",
        "a broker is full when its report says so",
        (Edit(SessionSoftState, "wait_room", "not self.metadata.awaits_report", "True"),),
        _SOFT,
    ),
    Mutant(
        "session-queues-without-bound",
        "C2",
        "a broker that does not sync is sent no more",
        (
            Edit(
                SessionSoftState,
                "check_room",
                "len(self._unacked) + count > DELIVERIES_UNACKED_MAX",
                "False",
            ),
        ),
        _SOFT,
    ),
    Mutant(
        "session-believes-a-sync-of-what-was-never-sent",
        "PO6",
        "a broker has synced no more than it was sent",
        (Edit(SessionSoftState, "acknowledge", "min(sequence, self.sequence)", "sequence"),),
        _SOFT,
    ),
    Mutant(
        "session-takes-a-sync-back",
        "PO6",
        "what was synced stays synced",
        (Edit(SessionSoftState, "acknowledge", "max(self.acked, sequence)", "sequence"),),
        _SOFT,
    ),
    Mutant(
        "session-waits-for-a-sync-that-never-comes",
        "PO6",
        "the end of a session ends every wait",
        (Edit(SessionSoftState, "wait_synced", "if self.ended is not None:", "if False:"),),
        _SOFT,
    ),
    Mutant(
        "session-sends-messages-of-any-size",
        "C2",
        "a message to a broker has a bounded size",
        (
            Edit(
                SessionSoftState,
                "deliveries_after",
                "taken and size > DELIVERIES_BYTES_MAX",
                "False",
            ),
        ),
        _SOFT,
    ),
    Mutant(
        "session-looks-for-what-was-synced",
        "V13",
        "what was synced is not sent again",
        (Edit(SessionSoftState, "deliveries_after", "max(cursor, self.acked)", "cursor"),),
        _SOFT,
    ),
)

_METADATA_MUTANTS = (
    Mutant(
        "session-has-what-is-gone",
        "V13",
        "a parent whose removal waits is not had",
        (Edit(SessionMetadata, "has_parent", " or sent.is_gone", ""),),
        _METADATA,
    ),
    Mutant(
        "session-takes-a-namesake",
        "A2",
        "a tenant or namespace is the one of its id",
        (
            Edit(
                SessionMetadata,
                "has_parent",
                'return object_id in ("", sent.object_id)',
                "return True",
            ),
        ),
        (_SHARDS + "sessions/test_broker_manager.py",),
    ),
    Mutant(
        "session-assigns-what-was-released",
        "B1",
        "an assignment that comes after the release of its epoch is not had",
        (Edit(SessionMetadata, "note_assigned", ">= assignment.epoch", ">= 2**63"),),
        _METADATA,
    ),
    Mutant(
        "session-lowers-a-version",
        "V13",
        "the highest version that was sent counts",
        (
            Edit(
                SessionMetadata,
                "note_assigned",
                "max(sent.version, topic.version)",
                "topic.version",
            ),
        ),
        _METADATA,
    ),
    Mutant(
        "session-remembers-every-release",
        "CA5",
        "a bounded number of releases is remembered",
        (
            Edit(
                SessionMetadata,
                "note_released",
                "len(self._released) > RELEASED_UNITS_REMEMBERED_MAX",
                "False",
            ),
        ),
        _METADATA,
    ),
    Mutant(
        "session-releases-a-later-epoch",
        "B1",
        "a release of an earlier epoch takes nothing",
        (
            Edit(
                SessionMetadata,
                "note_released",
                " or sent.units.get(release.unit, release.epoch + 1) > release.epoch",
                "",
            ),
        ),
        _METADATA,
    ),
    Mutant(
        "session-forgets-a-topic-with-units",
        "V14",
        "a topic is had until its last unit is released",
        (Edit(SessionMetadata, "note_released", "if sent.units:", "if False:"),),
        _METADATA,
    ),
    Mutant(
        "session-counts-units-of-deleted-topics-for-ever",
        "CA5",
        "a unit of a deleted topic counts until it is released",
        (
            Edit(
                SessionMetadata,
                "note_released",
                "self._orphans.get(key, release.epoch + 1) <= release.epoch",
                "False",
            ),
        ),
        _METADATA,
    ),
    Mutant(
        "session-learns-what-it-sent",
        "V14",
        "a report changes nothing that this leader sent",
        (Edit(SessionMetadata, "_report_parent", " or held.name in self._parents", ""),),
        _METADATA,
    ),
    Mutant(
        "session-learns-of-unknown-kinds",
        "R4",
        "an object of an unknown kind in a report is left out",
        (
            Edit(
                SessionMetadata,
                "_report_parent",
                "held.kind not in (KIND_TENANT, KIND_NAMESPACE) or ",
                "",
            ),
        ),
        _METADATA,
    ),
    Mutant(
        "session-learns-what-it-released",
        "V14",
        "what this leader released counts for more than a report",
        (
            Edit(
                SessionMetadata,
                "_report_topic",
                "if self._released.get((held.id, each.unit), -1) < each.epoch",
                "",
            ),
        ),
        _METADATA,
    ),
    Mutant(
        "session-lowers-an-epoch",
        "A3",
        "the highest epoch of a unit counts",
        (Edit(SessionMetadata, "_note_unit", "max(epoch, sent.units.get(unit, epoch))", "epoch"),),
        _METADATA,
    ),
    Mutant(
        "session-counts-a-unit-twice",
        "CA5",
        "a unit of a deleted topic that comes again counts once",
        (
            Edit(
                SessionMetadata,
                "_note_unit",
                " and self._orphans.pop((sent.object_id, unit), None) is None",
                "",
            ),
        ),
        _METADATA,
    ),
    Mutant(
        "session-has-any-number-of-parents",
        "V16",
        "a session has a bounded number of parents, and forgets none of them",
        (
            Edit(
                SessionMetadata,
                "_add_parent",
                " and len(self._parents) >= SESSION_METADATA_MAX",
                " and False",
            ),
        ),
        _METADATA,
    ),
    Mutant(
        "session-is-sent-parents-beyond-its-bound",
        "V16",
        "parents that cannot be followed are refused before they are sent",
        (Edit(MetadataWatch, "check_room", "not metadata.has_parent_room(parents)", "False"),),
        _FOLLOWED,
    ),
    Mutant(
        "manager-sends-what-it-cannot-follow",
        "V15",
        "names that cannot be followed are refused before they are sent",
        (
            Edit(
                MetadataWatch,
                "check_room",
                "len(self._names) + len(added) > METADATA_NAMES_WATCHED_MAX",
                "False",
            ),
        ),
        _FOLLOWED,
    ),
    Mutant(
        "manager-leaves-out-what-it-cannot-follow",
        "V15",
        "what a broker reports is followed, or its session ends",
        (
            Edit(
                MetadataWatch,
                "hold",
                'raise Overloaded(f"{len(self._names)} names are followed for brokers")',
                "return",
            ),
        ),
        _FOLLOWED,
    ),
    Mutant(
        "manager-calls-a-refused-report-complete",
        "V15",
        "home shards wait until a session that cannot be followed has ended",
        (
            Edit(
                MetadataWatch,
                "take_report",
                "session.metadata.is_refused = session.metadata.awaits_report = True",
                "session.metadata.is_refused, session.metadata.awaits_report = True, False",
            ),
        ),
        _FOLLOWED,
    ),
    Mutant(
        "effective-before-a-topic-is-given-up",
        "PO4",
        "a change waits for a broker that has not synced the release of its topic",
        (Edit(MetadataWatch, "leave", "self._leaving[sent] = sequence", "return self.drop(sent)"),),
        ("tests/unit/shards/sessions/test_metadata_watch.py",),
    ),
)

_HELLO_MUTANTS = (
    Mutant(
        "hello-of-any-id",
        "A6",
        "a broker's id is short and printable",
        (
            Edit(
                session_hello,
                "check_hello",
                "0 < len(broker_id.encode()) <= NODE_ID_BYTES_MAX or not broker_id.isprintable()",
                "True",
            ),
        ),
        _HELLO,
    ),
    Mutant(
        "hello-without-an-endpoint",
        "A6",
        "a broker says where it is asked",
        (Edit(session_hello, "check_hello", "not endpoints.grpc", "False"),),
        _HELLO,
    ),
    Mutant(
        "hello-of-any-length",
        "A6",
        "what a broker says of itself has a bounded length",
        (Edit(session_hello, "check_hello", "len(text.encode()) > ADDRESS_BYTES_MAX", "False"),),
        _HELLO,
    ),
    Mutant(
        "hello-from-beyond-every-sequence",
        "A6",
        "a sequence fits what can be stored",
        (Edit(session_hello, "check_hello", "hello.last_sequence > STORED_INTEGER_MAX", "False"),),
        _HELLO,
    ),
    Mutant(
        "hello-with-any-number-of-objects",
        "CA5",
        "a page of what a broker holds is bounded",
        (
            Edit(
                session_hello,
                "check_held",
                "len(held.objects) > HELD_OBJECTS_PER_MESSAGE_MAX",
                "False",
            ),
        ),
        _HELLO,
    ),
    Mutant(
        "hello-from-elsewhere",
        "A6",
        "a broker that listens elsewhere does not resume",
        (Edit(session_hello, "is_same_broker", "and known.endpoints == hello.endpoints", ""),),
        _HELLO,
    ),
    Mutant(
        "hello-of-another-size",
        "A7",
        "a broker of another capacity does not resume",
        (
            Edit(
                session_hello,
                "is_same_broker",
                "and announced_units(known) == hello.capacity_units",
                "",
            ),
        ),
        _HELLO,
    ),
    Mutant(
        "hello-from-another-rack",
        "PL1",
        "a broker in another zone or rack, or of another kind, does not resume",
        (
            Edit(
                session_hello,
                "is_same_broker",
                "and (known.zone, known.rack, known.kind) == (hello.zone, hello.rack, hello.kind)",
                "",
            ),
        ),
        _HELLO,
    ),
)

_BROKER_MUTANTS = (
    Mutant(
        "broker-resumes-another-session",
        "B1",
        "what is held is of the session that is resumed",
        (
            Edit(
                BrokerSession,
                "_established",
                "given.resumed and given.session_id == self.session_id",
                "given.resumed",
            ),
        ),
        _BROKER,
    ),
    Mutant(
        "broker-resumes-beyond-what-it-applied",
        "V14",
        "a resume beyond what is applied gives the session up",
        (
            Edit(
                BrokerSession,
                "_established",
                "given.next_sequence > self.applied_sequence + 1",
                "False",
            ),
        ),
        _BROKER,
    ),
    Mutant(
        "broker-keeps-what-an-earlier-session-held",
        "B1",
        "a session that is not resumed voids everything",
        (Edit(BrokerSession, "_void", "self.holding = Holding()", "pass"),),
        _BROKER,
    ),
    Mutant(
        "broker-applies-without-a-connection",
        "B1",
        "nothing is applied once the connection is given up",
        (Edit(BrokerSession, "_delivered", "self.status is not Status.CONNECTED", "False"),),
        _BROKER,
    ),
    Mutant(
        "broker-applies-twice",
        "V13",
        "what is repeated changes nothing",
        (Edit(BrokerSession, "_delivered", "delivery.sequence <= self.applied_sequence", "False"),),
        _BROKER,
    ),
    Mutant(
        "broker-applies-behind-a-gap",
        "V14",
        "nothing behind a gap is applied",
        (
            Edit(
                BrokerSession,
                "_delivered",
                "delivery.sequence > self.applied_sequence + 1",
                "False",
            ),
        ),
        _BROKER,
    ),
    Mutant(
        "broker-asks-for-ever-for-what-is-gone",
        "V14",
        "the same gap after a resume gives the session up",
        (Edit(BrokerSession, "_gap", "self._gap_at_sequence == self.applied_sequence", "False"),),
        _BROKER,
    ),
    Mutant(
        "broker-reports-a-session-that-it-gave-up",
        "V14",
        "nothing is reported to a session that is given up",
        (Edit(BrokerSession, "_delivered", "if not self.session_id:", "if False:"),),
        _BROKER,
    ),
    Mutant(
        "agent-follows-hints-for-ever",
        "A6",
        "hints that go round are followed a few times before a pause",
        (Edit(BrokerAgent, "run", " and self._hints_in_a_row < HINTS_IN_A_ROW_MAX", ""),),
        _AGENT,
    ),
    Mutant(
        "agent-dials-without-a-pause",
        "A6",
        "a manager that ends every connection at once is not dialled without a pause",
        (
            Edit(
                BrokerAgent,
                "run",
                "greeted and lasted_ms >= BROKER_RECONNECT_BACKOFF_MS_MAX",
                "greeted",
            ),
        ),
        _AGENT,
    ),
    Mutant(
        "agent-follows-old-news",
        "A6",
        "news of an earlier leader moves nothing",
        (Edit(BrokerAgent, "_watch_leader", " and known.term > location.term", ""),),
        _AGENT,
    ),
    Mutant(
        "agent-takes-its-own-stall-for-silence",
        "A6",
        "a manager is not left because the broker itself stood still",
        (Edit(BrokerAgent, "_heartbeat", "min(self._clock(), wakes_at_ms)", "self._clock()"),),
        _AGENT,
    ),
    Mutant(
        "agent-stays-with-a-silent-manager",
        "A6",
        "a manager that is silent is left",
        (Edit(BrokerAgent, "_heartbeat", "silence_ms >= timing.session_ttl_ms", "False"),),
        _AGENT,
    ),
    Mutant(
        "agent-gives-its-session-up-for-nothing",
        "A6",
        "only a session that is over is given up",
        (Edit(BrokerAgent, "_turned_away", "answer.reason == SessionExpired.reason", "True"),),
        _AGENT,
    ),
    Mutant(
        "agent-keeps-an-expired-session",
        "A6",
        "a session that is over is registered anew",
        (Edit(BrokerAgent, "_turned_away", "answer.reason == SessionExpired.reason", "False"),),
        _AGENT,
    ),
    Mutant(
        "agent-leaves-before-it-came",
        "A6",
        "a broker that never registered sends no close",
        (Edit(BrokerAgent, "_keep_connection", "if self.is_registered:", "if True:"),),
        _AGENT,
    ),
    Mutant(
        "agent-says-its-wish-once",
        "CA7",
        "a drain request is sent again to the next manager",
        (Edit(BrokerAgent, "_keep_connection", "if self._drain_rate:", "if False:"),),
        _AGENT,
    ),
    Mutant(
        "agent-reports-nothing-that-it-holds",
        "CA5",
        "held units are reported to a manager that requests them",
        (Edit(BrokerAgent, "_greet", "if answer.wants_held:", "if False:"),),
        _AGENT,
    ),
)

MUTANTS = (
    *_RULE_MUTANTS,
    *_MANAGER_MUTANTS,
    *_SOFT_STATE_MUTANTS,
    *_METADATA_MUTANTS,
    *_HELLO_MUTANTS,
    *_BROKER_MUTANTS,
)
