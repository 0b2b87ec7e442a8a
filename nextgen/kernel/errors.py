"""Errors that callers are expected to handle.

    MetadataError
    ├── Definite                  the operation did not and will not happen
    │   ├── Refused               the rules said no (a rejection, seen from a client)
    │   ├── ServedElsewhere       a stock broker has the topic: ask its own Admin REST
    │   ├── NotLeader             retry at ``leader_hint``
    │   ├── StaleShardMap         refresh the shard map, then retry
    │   ├── Unavailable           no leader, no route, no capacity: retry later
    │   ├── Overloaded            a queue is full: back off, then retry
    │   ├── SessionExpired        register again, then start over
    │   ├── Unauthenticated       without proof of the cluster secret: do not retry
    │   ├── Forbidden             the principal may not do this: do not retry
    │   ├── InvalidRequest        malformed, oversized or unknown: do not retry
    │   ├── TransferFailed        leadership stayed where it was
    │   ├── PositionCompacted     cut off: begin at the oldest, or with a snapshot
    │   ├── PositionAhead         no event has that position; final only from the leader
    │   └── RefusesToStart        the process must not run on this data directory
    │       ├── WrongCluster
    │       └── JournalCorrupted
    └── Indefinite                it may have happened, or may yet happen
        ├── ProposalLost          leadership changed while committing
        ├── ConnectionLost        the connection broke after the request was sent
        ├── OutcomeForgotten      a repetition that came too late: look, do not repeat
        └── DeadlineExceeded      no answer in time

Retrying a definite error is always safe. An indefinite one may only be retried with the
same command id, which makes the second attempt a no-op if the first won. When in doubt,
raise an indefinite error: wrongly definite loses data.

A refused command is a value inside a shard (``nextgen.kernel.events.decider.Rejected``); only the
client library turns it into ``Refused``. A broken invariant is not here: it is an
``assert``, and it stops the replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType


class MetadataError(Exception):
    """Base class; never raised itself."""

    reason = "UNKNOWN"
    """Stable name of the kind of error, as it travels in ``ErrorDetail.reason``."""

    retry_after_ms = 0
    """Earliest sensible retry; 0: the caller's own pause. Only ``Overloaded`` sets it."""


class Definite(MetadataError):
    """The operation did not happen and never will."""


class Indefinite(MetadataError):
    """The operation may have happened, or may still happen later."""


class Refused(Definite):
    """The rules say no. ``code`` is a ``RejectionCode`` value.

    ``room`` is how many units of a batch that was refused for NO_CAPACITY would fit; None: unknown.
    """

    reason = "REFUSED"

    def __init__(self, code: str, message: str, *, room: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.room = room


class ServedElsewhere(Definite):
    """An operation on a topic that an Apache Pulsar broker serves: that does it, not this cluster.

    ``web_urls`` is where its Admin REST is: ``http://host:port``, ``https://host:port``, or both
    with a comma between them.
    """

    reason = "SERVED_ELSEWHERE"

    def __init__(self, web_urls: str) -> None:
        super().__init__(
            "an Apache Pulsar broker serves the topic, its own Admin REST does this: "
            f"{web_urls.replace(',', ' or ')}"
        )
        self.web_urls = web_urls


class NotLeader(Definite):
    """This replica is not the leader of its group."""

    reason = "NOT_LEADER"

    def __init__(self, group_id: int, leader_hint: str | None = None) -> None:
        super().__init__(f"not the leader of group {group_id}, try {leader_hint or 'any replica'}")
        self.group_id = group_id
        self.leader_hint = leader_hint


class StaleShardMap(Definite):
    """The caller routed by a shard map that does not hold here.

    ``moved_to`` is the shard that the refusing one gave the slots to, 0 if it does not know.
    ``moved_slots`` are the ranges of slots, ends included, that went there with the asked one.
    ``moved_names`` are routing keys of the request, each with the slot by which its topic is found:
    the slot of a renamed topic's home, or a key's own slot if the refusing shard is no home of it.
    """

    reason = "STALE_SHARD_MAP"

    def __init__(
        self,
        message: str,
        shard_map_version: int = 0,
        *,
        moved_to: int = 0,
        moved_slots: Sequence[tuple[int, int]] = (),
        moved_names: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.shard_map_version = shard_map_version
        self.moved_to = moved_to
        self.moved_slots = tuple(moved_slots)
        self.moved_names = dict(moved_names)


class Unavailable(Definite):
    """Nothing was tried: there is no leader, no route or no capacity at the moment."""

    reason = "UNAVAILABLE"


class Overloaded(Definite):
    """A bounded queue is full; what Pulsar and HTTP call "too many requests".

    ``retry_after_ms`` is the time after which the refusing process expects to have room. Callers
    wait that long, and up to half as long again, so that their retries are spread.
    """

    reason = "OVERLOADED"

    def __init__(self, message: str, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class SessionExpired(Definite):
    """The broker session is not the current one."""

    reason = "SESSION_EXPIRED"


class Unauthenticated(Definite):
    """The caller has not proved who it is: a process (ADR 0057) or a client (ADR 0146)."""

    reason = "UNAUTHENTICATED"


class Forbidden(Definite):
    """The client's principal may not do this to that resource."""

    reason = "FORBIDDEN"


class InvalidRequest(Definite):
    """The request is malformed, oversized or not known here."""

    reason = "INVALID_REQUEST"


class TransferFailed(Definite):
    """Leadership was not handed over."""

    reason = "TRANSFER_FAILED"


class PositionCompacted(Definite):
    """The requested position is no longer in the log; reading can start at ``oldest``.

    ``snapshot_position`` is the position of the snapshot that a Watch would begin with, 0 if the
    refusing service has no snapshots.
    """

    reason = "POSITION_COMPACTED"

    def __init__(self, asked: int, oldest: int, snapshot_position: int = 0) -> None:
        sentence = f"position {asked} is no longer in the log, the oldest is {oldest}"
        if snapshot_position:
            sentence += (
                f"; read from there, or begin a watch without a position: its snapshot is of "
                f"position {snapshot_position}"
            )
        super().__init__(sentence)
        self.asked = asked
        self.oldest = oldest
        self.snapshot_position = snapshot_position


class PositionAhead(Definite):
    """The requested position lies in the future: ``last`` is the last committed one.

    A follower may only be behind. ``is_final``: a leader that a majority has confirmed answered.
    """

    reason = "POSITION_AHEAD"

    def __init__(self, asked: int, last: int, *, is_final: bool = False) -> None:
        super().__init__(
            f"position {asked} is in the future, the last committed event "
            f"{'is' if is_final else 'known here is'} {last}"
        )
        self.asked = asked
        self.last = last
        self.is_final = is_final


class RefusesToStart(Definite):
    """The process must not run; the message says what to do. Nothing on disk was touched."""

    reason = "REFUSES_TO_START"


class WrongCluster(RefusesToStart):
    """The data directory, or the peer, belongs to another cluster or node."""

    reason = "WRONG_CLUSTER"


class JournalCorrupted(RefusesToStart):
    """The journal is damaged where it must not be."""

    reason = "JOURNAL_CORRUPTED"


class ProposalLost(Indefinite):
    """Leadership moved while the record was in flight."""

    reason = "PROPOSAL_LOST"


class ConnectionLost(Indefinite):
    """The connection broke before the answer came."""

    reason = "CONNECTION_LOST"


class OutcomeForgotten(Indefinite):
    """The command may have been executed so long ago that its outcome is no longer kept.

    It was not executed now, and must not be repeated: the caller has to read the state first.
    """

    reason = "OUTCOME_FORGOTTEN"


class DeadlineExceeded(Indefinite):
    """No answer in time."""

    reason = "DEADLINE_EXCEEDED"
