"""The order in which units leave a session: the busiest first, then by key; or the busiest last.

Where all units leave, the busy ones go first, since clients wait for them or because they make the
load. Where a broker keeps most of its units, those that serve traffic stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from nextgen.kernel.routing.names import InvalidName, TopicName, parse_topic
from shards.assignment.unit_reads import UnitReads, load_own
from shards.domain.assignment import Assignment
from shards.state.shard_state import ShardState


class EvacuationOrder:
    """One pass over the units that a session has in this shard; each unit comes once.

    ``busiest`` are the names of the broker's last load report, of units of any shard, the busiest
    first; with ``are_busiest_last`` they come behind all others, the least busy of them first.
    Units that a lookup or a move has taken from the session meanwhile are left out.
    """

    def __init__(
        self,
        state: ShardState,
        units: UnitReads,
        session_id: str,
        busiest: Sequence[str] = (),
        *,
        are_busiest_last: bool = False,
    ) -> None:
        self._state = state
        self._scans = state.scans
        self._units = units
        self._session_id = session_id
        self._busiest = [name for text in busiest if (name := _name(text)) is not None]
        self._given_first: set[str] = set()
        self._last: list[Assignment] = []
        self._after = ""
        if are_busiest_last:
            self._last = self._next_busy(len(self._busiest))
            self._busiest = []

    def next(self, units_max: int) -> list[Assignment]:
        """Return the next units, at most ``units_max``; none when the pass is over.

        Raises:
            NotLeader: The term is over.
        """
        if self._busiest:
            units = self._next_busy(units_max)
            if units:
                return units
        page = self._scans.units_of_session(self._session_id, self._after, units_max)
        while page:
            self._after = page[-1].key
            fresh = [unit for unit in page if unit.key not in self._given_first]
            if fresh:
                return fresh
            page = self._scans.units_of_session(self._session_id, self._after, units_max)
        least_busy = self._last[-units_max:][::-1] if units_max else []
        del self._last[len(self._last) - len(least_busy) :]
        return least_busy

    def _next_busy(self, units_max: int) -> list[Assignment]:
        units: list[Assignment] = []
        while self._busiest and not units:
            names, self._busiest = self._busiest[:units_max], self._busiest[units_max:]
            for _, assignment in load_own(self._state, self._units, names):
                if assignment is None or assignment.session_id != self._session_id:
                    continue
                if assignment.key not in self._given_first:
                    self._given_first.add(assignment.key)
                    units.append(assignment)
        return units


def _name(text: str) -> TopicName | None:
    try:
        return parse_topic(text)
    except InvalidName:
        return None
