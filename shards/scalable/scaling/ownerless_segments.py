"""Which segments of one shard have been without an owner for so long that they have no traffic.

    its session ended, or it was unassigned ─▶ two report intervals ─▶ still no owner: no traffic

A segment that nobody owns is reported by nobody, so its last load would stay on record: a hot one
could be split again, and one that is not cold would never be merged. Who has no owner is soft
state: a new leader begins to count anew. That such a segment has no traffic is recorded, so
decisions are made by what is in the log alone (ADR 0143).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.scalable import SEGMENT_LOAD_REPORT_MS
from nextgen.kernel.routing.names import Domain, TopicName, parse_topic
from nextgen.tasks.background import keep
from shards.domain.assignment import unit_key
from shards.domain.scalable.loads import TopicLoads
from shards.domain.scalable.state import ScalableTopic
from shards.ports import BrokerDirectory, Clock
from shards.state.shard_state import ShardState

_NO_TRAFFIC = Rates()
OWNERLESS_REPORTS = 2
"""After so many report intervals without an owner a segment has no traffic. An owner reports within
as many."""

_LOOK_S_MAX = SEGMENT_LOAD_REPORT_MS / 1_000
"""Between two looks at the sessions that have units here, a handful; less if reports come more
often."""

_PAGE = 256
_SEGMENT = f"{Domain.SEGMENT}://"


class OwnerlessSegments:
    """The segments without an owner of one shard, for one term.

    ``has_ended`` says whether a broker's session has ended. ``on_silent`` is called with a topic
    and the time, of the monotonic clock, at which it is to be evaluated.
    """

    def __init__(
        self,
        state: ShardState,
        directory: BrokerDirectory,
        has_ended: Callable[[str, str], bool],
        clock: Clock,
        on_silent: Callable[[str, float], None],
    ) -> None:
        self._state = state
        self._directory = directory
        self._has_ended = has_ended
        self._clock = clock
        self._on_silent = on_silent
        self._since: dict[str, dict[int, float]] = {}
        """By topic and segment: since when it has no owner, in seconds of the monotonic clock."""
        self._looked_at: set[str] = set()
        """Topics that were looked at in this term: who loses its owner from then on is noted."""
        self._ended: dict[str, float] = {}
        """Sessions with units here that have ended: since when that is known."""
        self._noted: set[str] = set()
        """Those of which the units that were left have been noted."""
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<OwnerlessSegments topics={len(self._since)}>"

    def start(self) -> None:
        """Begin to look at the sessions."""
        self._task = keep("ownerless_segments", self._run)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def note(self, names: Iterable[str]) -> None:
        """Note units, segments or others, that were unassigned just now, by canonical name."""
        now = self._clock.monotonic()
        for name in names:
            if name.startswith(_SEGMENT):
                self._note(name, now)

    def forget(self, topic: str) -> None:
        """Forget a topic that is gone."""
        self._since.pop(topic, None)
        self._looked_at.discard(topic)

    def silent(self, topic: ScalableTopic, loads: TopicLoads) -> Mapping[int, Rates]:
        """Return the rates, which are zeros, of the active segments that have traffic on record and
        had no owner for ``OWNERLESS_REPORTS``.

        One that has had none for a shorter time has its topic evaluated again when that is over.
        """
        if topic.name in self._looked_at and topic.name not in self._since:
            return {}
        self._looked_at.add(topic.name)
        busy = [
            each
            for each in topic.active
            if (load := loads.loads.get(each.segment_id)) is not None and load.rates != _NO_TRAFFIC
        ]
        if not busy:
            self._keep(topic.name, {})
            return {}
        keys = [unit_key(topic.topic_id, each.unit.text) for each in busy]
        before, now = self._since.get(topic.name, {}), self._clock.monotonic()
        since = {
            segment.segment_id: before.get(segment.segment_id, now)
            for segment, found in zip(busy, self._state.reads.load_assignments(keys), strict=True)
            if found is None
            or not found.is_assigned
            or self._has_ended(found.broker_id, found.session_id)
        }
        silence_s = self._silence_s
        silent = [number for number, at in since.items() if at + silence_s <= now]
        waiting = [at for number, at in since.items() if number not in silent]
        self._keep(topic.name, since)
        if waiting:
            self._on_silent(topic.name, min(waiting) + silence_s)
        return dict.fromkeys(silent, _NO_TRAFFIC)

    def recorded(self, topic: str, segments: Collection[int]) -> None:
        """Note that it is recorded that these segments have no traffic: until then they are silent
        at each evaluation."""
        since = self._since.get(topic, {})
        self._keep(topic, {number: at for number, at in since.items() if number not in segments})

    # ------------------------------------------------------------------------------------------

    @property
    def _interval_s(self) -> float:
        """How often owners report at present."""
        return self._directory.settings().load_reporting.interval_ms / 1_000

    @property
    def _silence_s(self) -> float:
        return OWNERLESS_REPORTS * self._interval_s

    def _keep(self, topic: str, since: dict[int, float]) -> None:
        if since:
            self._since[topic] = since
        else:
            self._since.pop(topic, None)

    async def _run(self) -> None:
        with contextlib.suppress(MetadataError):  # The term is over.
            while True:
                await self._look()
                await asyncio.sleep(min(_LOOK_S_MAX, self._interval_s))

    async def _look(self) -> None:
        """Note the segments that ended sessions still have: most have been assigned again."""
        now = self._clock.monotonic()
        ended: dict[str, float] = {}
        for session_id in self._state.scans.usage():
            if self._directory.session(session_id) is not None:
                continue
            units = self._state.scans.units_of_session(session_id, "", 1)
            if units and self._has_ended(units[0].broker_id, session_id):
                ended[session_id] = self._ended.get(session_id, now)
        self._ended = ended
        self._noted &= ended.keys()
        for session_id, at in ended.items():
            if at + self._silence_s <= now and session_id not in self._noted:
                self._noted.add(session_id)
                await self._note_session(session_id, at)

    async def _note_session(self, session_id: str, at: float) -> None:
        after = ""
        while units := self._state.scans.units_of_session(session_id, after, _PAGE):
            for unit in units:
                if unit.name.startswith(_SEGMENT):
                    self._note(unit.name, at)
            after = units[-1].key
            await asyncio.sleep(0)

    def _note(self, name: str, at: float) -> None:
        segment = parse_topic(name)
        assert segment.segment is not None, f"{name} is a segment"
        topic = TopicName(Domain.TOPIC, segment.tenant, segment.namespace, segment.base_name).text
        self._since.setdefault(topic, {})[segment.segment.segment_id] = at
        self._on_silent(topic, at + self._silence_s)
