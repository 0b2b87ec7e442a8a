"""Names that rest: topics whose deletion was forced are not created on demand for a moment."""

from __future__ import annotations

from collections import OrderedDict

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import EVENTS_BATCH_BYTES_MAX
from nextgen.kernel.limits.placement import (
    FORCED_DELETION_EVENTS_MAX,
    FORCED_DELETIONS_REMEMBERED_MAX,
)
from nextgen.kernel.limits.pulsar import FORCED_DELETION_PAUSE_MS
from nextgen.replication.ports import PositionCompacted, ReplicatedLog
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.state.shard_state import ShardState
from shards.wire.event import TOPIC_DELETED_TRACE

_PAUSE_SECONDS = FORCED_DELETION_PAUSE_MS / 1_000


class ForcedDeletions:
    """Names whose deletion was forced a moment ago: they are not created on demand.

    Kept in memory for one term. The deletions of earlier terms are read from the end of the log
    when a creation on demand first asks, if that is within the pause: then a name rests until one
    pause after the beginning of the term, whatever the clocks of the two leaders show.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._monotonic = state.monotonic
        self._until: OrderedDict[str, float] = OrderedDict()
        self._earlier_until: float | None = self._monotonic() + _PAUSE_SECONDS
        """Until when names of earlier terms rest; None once they are known."""

    def note(self, name: str) -> None:
        self._note(name, self._monotonic() + _PAUSE_SECONDS)

    def check(self, name: str) -> Rejected | None:
        """Return why the topic is not created on demand now, None if it may be."""
        if self._earlier_until is not None:
            self._recover(self._earlier_until)
        until = self._until.get(name)
        if until is None or until <= self._monotonic():
            self._until.pop(name, None)
            return None
        return Rejected(
            RejectionCode.JUST_DELETED,
            f"the deletion of topic {name} was forced less than {FORCED_DELETION_PAUSE_MS} ms ago",
        )

    def _recover(self, until: float) -> None:
        """Note what the leaders of earlier terms deleted by force in the last moments."""
        self._earlier_until = None
        if until <= self._monotonic():
            return
        for name in forced_before(self._state.log, self._state.term.number):
            if name not in self._until:
                self._note(name, until)

    def _note(self, name: str, until: float) -> None:
        self._until.pop(name, None)
        self._until[name] = until
        if len(self._until) > FORCED_DELETIONS_REMEMBERED_MAX:
            self._until.popitem(last=False)


def forced_before(log: ReplicatedLog, term: int) -> list[str]:
    """Return the names of forced deletions at the end of the log, of terms before ``term``.

    Left out are those that their leader outlived by the pause: it wrote something later.
    At most ``FORCED_DELETION_EVENTS_MAX`` events are read.
    """
    end = log.status.commit_position
    position = max(log.status.first_position, end - FORCED_DELETION_EVENTS_MAX + 1)
    forced: list[tuple[str, int, int]] = []
    last_payloads: dict[int, bytes] = {}
    try:
        while position <= end:
            entries = log.read(
                position, events_max=FORCED_DELETION_EVENTS_MAX, bytes_max=EVENTS_BATCH_BYTES_MAX
            )
            for entry in entries:
                for record in entry.records if entry.term < term else ():
                    last_payloads[entry.term] = record.payload
                    if TOPIC_DELETED_TRACE in record.payload:
                        decided = DecidedCommand.FromString(record.payload)
                        forced += [
                            (event.topic_deleted.name, decided.time_ms, entry.term)
                            for event in decided.events
                            if event.topic_deleted.forced
                        ]
            if not entries:
                break
            position = entries[-1].next_position
    except PositionCompacted:
        # A snapshot has just replaced these entries. The names are created a moment early.
        return []
    ended_ms = {
        each: DecidedCommand.FromString(payload).time_ms for each, payload in last_payloads.items()
    }
    return [
        name
        for name, time_ms, deleted_in in forced
        if time_ms > ended_ms[deleted_in] - FORCED_DELETION_PAUSE_MS
    ]
