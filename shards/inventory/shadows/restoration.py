"""Sources of restored shadows: recorded again, for every shard.

A backup has the shadows, each with the name of its source, and not which shards had them. The
restored cluster may have others anyway, so a source is recorded for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nextgen.kernel.errors import InvalidRequest, StaleShardMap
from nextgen.kernel.events.decider import Accepted
from nextgen.kernel.limits.bulk import RESTORE_ITEMS_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import Domain, InvalidName, parse_topic
from shards.domain.shadows import source as shadow_source
from shards.domain.shadows.source import EVERY_SHARD, RecordShadowShard
from shards.state.shard_state import ShardState
from shards.wire.event import DomainEvent


class RestoredSources:
    """The sources of one request, and the events that record them. Absent topics are passed over:
    a shadow without a source is as it was in the backup."""

    def __init__(self, state: ShardState, names: Sequence[str]) -> None:
        if len(names) > RESTORE_ITEMS_MAX:
            raise InvalidRequest(
                f"{len(names)} sources of shadows to restore, at most {RESTORE_ITEMS_MAX}"
            )
        owned = state.slots.owned()
        for text in names:
            try:
                name = parse_topic(text)
            except InvalidName as error:
                raise InvalidRequest(str(error)) from error
            if name.domain is not Domain.PERSISTENT or name.base_text != text:
                raise InvalidRequest(f"{text[:200]!r} is not the name of a source of shadows")
            if not owned[slot_of(name.routing_key)]:
                raise StaleShardMap(
                    f"shard {state.shard_id} does not have the slot of {text}",
                    state.slots.map_version,
                )
        self.time_ms = state.now_ms()
        self.size = len(names)
        self.created = 0
        self.births: list[DomainEvent] = []
        self.others: list[DomainEvent] = []
        self.added: Counter[str] = Counter()
        self._state = state
        self._names = names

    def decide(self, _least_epoch: int) -> None:
        """Decide all of them."""
        for name, topic in zip(
            self._names, self._state.reads.load_topics(self._names), strict=True
        ):
            if topic is None:
                continue
            present = self._state.reads.load_shadow_source(name)
            order = RecordShadowShard(name, topic.topic_id, EVERY_SHARD)
            decision = shadow_source.decide(present, order)
            assert isinstance(decision, Accepted), "the record is that of the topic that is there"
            self.others += decision.events
            self.created += bool(decision.events)
