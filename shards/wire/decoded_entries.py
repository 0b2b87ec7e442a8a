"""Committed entries, decoded once for all streams that read them at about the same time.

Bounded, and empty while nothing is watched.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice

from nextgen.client.log.wire import filled_events
from nextgen.kernel.limits.stream import DECODED_EVENTS_KEPT_MAX
from nextgen.replication.ports import Entry
from protos.nextgen.v1.events_pb2 import Event


class DecodedEntries:
    """The newest decoded entries of one shard's log. Their events are shared: never change one."""

    def __init__(self, shard_id: int) -> None:
        self._shard_id = shard_id
        self._kept: OrderedDict[tuple[int, int], Sequence[Event]] = OrderedDict()
        self._kept_events = 0
        self.decoded = 0
        """Entries decoded since the start."""

    def __repr__(self) -> str:
        return f"<DecodedEntries shard={self._shard_id} events={self._kept_events}>"

    def events(self, entry: Entry) -> Sequence[Event]:
        """Return the events of a committed entry, with position, term, shard, time and cause."""
        key = (entry.index, entry.term)
        events = self._kept.get(key)
        if events is None:
            events = tuple(filled_events(entry, self._shard_id))
            counted = entry.next_position - entry.first_position
            assert len(events) == counted, "a record counts its events wrongly"
            self.decoded += 1
            self._keep(key, events)
        return events

    def slices(self, entry: Entry, events_max: int) -> Iterator[Sequence[Event]]:
        """Yield what ``events`` returns in parts of ``events_max``, each decoded when it is due."""
        key = (entry.index, entry.term)
        known = self._kept.get(key)
        if known is not None:
            for start in range(0, len(known), events_max):
                yield known[start : start + events_max]
            return
        events: list[Event] = []
        coming = filled_events(entry, self._shard_id)
        while some := tuple(islice(coming, events_max)):
            events += some
            if len(events) == entry.next_position - entry.first_position:
                # Keep it before the last part is used: another stream may read it meanwhile.
                self.decoded += 1
                if key not in self._kept:
                    self._keep(key, tuple(events))
            yield some

    def _keep(self, key: tuple[int, int], events: Sequence[Event]) -> None:
        self._kept[key] = events
        self._kept_events += len(events)
        while self._kept_events > DECODED_EVENTS_KEPT_MAX and self._kept:
            _, oldest = self._kept.popitem(last=False)
            self._kept_events -= len(oldest)
