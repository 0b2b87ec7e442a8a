"""Which shadows may be created in one command, as the home shards of their sources said."""

from __future__ import annotations

from collections.abc import Sequence

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.shadow import SHADOWS_PER_TOPIC_MAX
from shards.domain.parent_gate import ParentGateEvent, ParentKind
from shards.domain.topic import TopicState
from shards.inventory.parents.gates import Admission, WantedParent
from shards.state.shard_state import ShardState
from shards.wire.command import NewTopic


class ShadowAdmissions:
    """The admissions of one command's shadows. Used in one step of the loop."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._admissions: dict[WantedParent, Admission | Rejected] = {}
        self._created: dict[str, int] = {}
        """By source: how many shadows it has with those of this command."""
        self._opened: set[str] = set()

    def add(self, source: WantedParent, admission: Admission | Rejected) -> None:
        self._admissions[source] = admission

    def refusal(self, new: NewTopic, before: TopicState) -> Rejected | None:
        """Return why a new topic may not be a shadow, None if it may or is none."""
        if not new.source or new.refusal is not None or before is not None:
            return None
        admission = self._admission(new)
        if isinstance(admission, Rejected):
            return admission
        if self._count(new.source) < SHADOWS_PER_TOPIC_MAX:
            return None
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"topic {new.source} has {SHADOWS_PER_TOPIC_MAX} shadows in shard "
            f"{self._state.shard_id}: no more are allowed",
        )

    def opened_by(self, new: NewTopic) -> Sequence[ParentGateEvent]:
        """Count an accepted topic, and return the events that belong before its creation."""
        if not new.source:
            return ()
        self._created[new.source] = self._count(new.source) + 1
        admission = self._admission(new)
        assert isinstance(admission, Admission), "the shadow was accepted"
        if new.source in self._opened:
            return ()
        self._opened.add(new.source)
        return admission.events

    def _admission(self, new: NewTopic) -> Admission | Rejected:
        return self._admissions[WantedParent(ParentKind.TOPIC, new.source, new.spec.partitions)]

    def _count(self, source: str) -> int:
        present = self._created.get(source)
        if present is None:
            found = self._state.scans.shadows_of(source, SHADOWS_PER_TOPIC_MAX)
            present = self._created[source] = len(found)
        return present
