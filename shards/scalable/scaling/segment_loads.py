"""Records the loads of segments that their owners report.

A request has what one broker measured at one time, and becomes one record at most. Only what moved
by enough is recorded; the answer says what is on record, so an owner that has just begun goes on
from there and an unchanged load is not written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nextgen.kernel.errors import InvalidRequest, MetadataError
from nextgen.kernel.governance.auto_scale_policy import InvalidAutoScale
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.governance.service_settings import ServiceSettings
from nextgen.kernel.limits.scalable import SEGMENT_LOADS_PER_REPORT_MAX
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic
from nextgen.kernel.scalable.segment_load import refused_rates
from protos.nextgen.v1.shard_service_pb2 import RecordedRates, SegmentSample
from shards.domain.assignment import Assignment, unit_key
from shards.domain.scalable.events import SegmentLoadsRecorded
from shards.domain.scalable.loads import of_topic, record
from shards.domain.scalable.state import ScalableTopic
from shards.metrics import ShardMetrics
from shards.scalable.scaling.scale_policies import NamespacePolicies, resolved
from shards.state.shard_state import ShardState
from shards.wire.scalable import RATES

_Sampled = dict[str, dict[int, Rates]]
"""Rates by topic and segment."""


class SegmentLoads:
    """The load records of one shard's scalable topics, for one term.

    ``on_recorded`` is called with the name of each topic of which loads were recorded.
    """

    def __init__(
        self,
        state: ShardState,
        policies: NamespacePolicies,
        settings: Callable[[], ServiceSettings],
        metrics: ShardMetrics,
        on_recorded: Callable[[str], None],
    ) -> None:
        self._state = state
        self._policies = policies
        self._settings = settings
        self._metrics = metrics
        self._on_recorded = on_recorded

    async def record(self, samples: Sequence[SegmentSample]) -> list[RecordedRates]:
        """Record what moved by enough; return, in order, what is on record then.

        Nothing for a sample that does not count: rates that cannot be, of a former owner, or of a
        segment that is not active.

        Raises:
            InvalidRequest: Too many samples, or a name that is none.
            StaleShardMap: A topic has its slot in another shard.
            NotLeader, Overloaded, Refused, ProposalLost: See ``Proposer.propose``.
        """
        if not 0 < len(samples) <= SEGMENT_LOADS_PER_REPORT_MAX:
            raise InvalidRequest(
                f"the loads of {len(samples)} segments, "
                f"1 to {SEGMENT_LOADS_PER_REPORT_MAX} are allowed"
            )
        names = [_name_of(sample) for sample in samples]
        for name in names:
            self._state.slots.check_key(name.routing_key)
        found = await self._policies.find(name.namespace_text for name in names)
        # From here to the proposal there is no await: that is the lock.
        places = self._places(samples, names)
        events = self._decided(samples, places, found)
        if events:
            commit = self._state.proposer.propose(events)
            for event in events:
                self._on_recorded(event.name)
            await commit
        else:
            await self._state.proposer.confirm()
        return [self._on_record(place) for place in places]

    def _places(
        self, samples: Sequence[SegmentSample], names: Sequence[TopicName]
    ) -> list[tuple[str, int] | None]:
        """Return the topic and segment of each sample, None of one that does not count."""
        units = [sample.unit for sample in samples]
        assignments = self._state.reads.load_assignments(
            [unit_key(unit.topic_id, unit.unit) for unit in units]
        )
        places: list[tuple[str, int] | None] = []
        for sample, name, assignment in zip(samples, names, assignments, strict=True):
            place = self._place(sample, name, assignment)
            places.append(place)
        return places

    def _place(
        self, sample: SegmentSample, name: TopicName, assignment: Assignment | None
    ) -> tuple[str, int] | None:
        unit = sample.unit
        of_owner = (
            assignment is not None
            and assignment.name == unit.name
            and assignment.epoch == unit.epoch
            and assignment.session_id == unit.session_id
        )
        topic_name = TopicName(Domain.TOPIC, name.tenant, name.namespace, name.base_name)
        topic = self._state.reads.load_scalable(topic_name.text)
        if not of_owner or topic is None or not _is_active(topic, topic_name, name):
            self._metrics.note_segment_load("former_owner")
            return None
        if refused_rates(RATES.from_stored(sample.rates)):
            self._metrics.note_segment_load("invalid")
            return None
        assert name.segment is not None, "only segments are active"
        return topic_name.text, name.segment.segment_id

    def _decided(
        self,
        samples: Sequence[SegmentSample],
        places: Sequence[tuple[str, int] | None],
        found: Mapping[str, Policies | MetadataError],
    ) -> list[SegmentLoadsRecorded]:
        sampled: _Sampled = {}
        for sample, place in zip(samples, places, strict=True):
            if place is not None:
                name, segment_id = place
                sampled.setdefault(name, {})[segment_id] = RATES.from_stored(sample.rates)
        events = []
        for name, rates in sampled.items():
            event = self._recorded(name, rates, found)
            written = 0 if event is None else sum(each.segment_id in rates for each in event.loads)
            for number in range(len(rates)):
                self._metrics.note_segment_load("recorded" if number < written else "unchanged")
            if event is not None:
                events.append(event)
        return events

    def _recorded(
        self,
        name: str,
        rates: Mapping[int, Rates],
        found: Mapping[str, Policies | MetadataError],
    ) -> SegmentLoadsRecorded | None:
        reads = self._state.reads
        topic = reads.load_scalable(name)
        assert topic is not None, "it was there in this turn"
        namespace = found[parse_topic(name).namespace_text]
        if isinstance(namespace, MetadataError):
            return None  # It is not known which thresholds count; the owner reports again.
        settings = self._settings()
        try:
            policy = resolved(settings.auto_scale, namespace, reads.load_topic(name))
        except InvalidAutoScale:
            policy = settings.auto_scale
        return record(
            topic,
            reads.load_loads(name),
            rates,
            policy,
            self._state.now_ms(),
            change=settings.load_reporting.rate_change,
        )

    def _on_record(self, place: tuple[str, int] | None) -> RecordedRates:
        if place is None:
            return RecordedRates()
        name, segment_id = place
        topic = self._state.reads.load_scalable(name)
        if topic is None:
            return RecordedRates()
        loads = of_topic(topic, self._state.reads.load_loads(name)).loads
        load = loads.get(segment_id)
        return RecordedRates(rates=None if load is None else RATES.to_stored(load.rates))


def _name_of(sample: SegmentSample) -> TopicName:
    try:
        return parse_topic(sample.unit.name)
    except InvalidName as error:
        raise InvalidRequest(f"the load of a segment: {error}") from error


def _is_active(topic: ScalableTopic, topic_name: TopicName, name: TopicName) -> bool:
    """Return whether ``name`` is that of a segment of ``topic`` that takes messages."""
    segment = None if name.segment is None else topic.segments.get(name.segment.segment_id)
    if segment is None or segment.is_sealed:
        return False
    return segment.name_in(topic_name) == name.text
