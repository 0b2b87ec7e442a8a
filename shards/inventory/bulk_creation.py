"""Bulk creates: thousands of topics in one record, by the rules of creates, without an outcome.

    parse ──▶ turn ──▶ room? ──▶ gates, bounds, names (no await) ──▶ propose ──▶ commit ──▶ answer
                        └── until a majority of views has all but the latest few records

Names come in ascending order without duplicates, as in a load file, so that every replica inserts
them next to each other into its view. A repeated request finds its topics existing, so no outcome
is recorded for it. Requests are decided one at a time, and each yields the event loop before the
next. The number of records ahead of the views is bounded, so ordinary commands do not wait for
them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nextgen.kernel.errors import (
    InvalidRequest,
    Unavailable,
)
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.bulk import (
    BULK_NAMES_BYTES_MAX,
    BULK_NAMES_MAX,
)
from nextgen.kernel.limits.cluster import PARENT_READ_ATTEMPTS_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic
from nextgen.replication.ports import Commit
from protos.nextgen.v1.shard_service_pb2 import BulkCreateResponse, BulkRefusal
from shards.domain import topic
from shards.domain.parent_gate import ParentKind
from shards.domain.states import StateKind
from shards.domain.topic import CreateTopic
from shards.inventory.bulk_turns import BulkTurns
from shards.inventory.parents.gates import Admission, ParentGates, ParentReads, WantedParent
from shards.inventory.renames.pointers import NamePointers, NameUses
from shards.inventory.topic_bounds import NO_BOUNDS, PoliciesByNamespace, TopicBounds, kind_for
from shards.inventory.topic_creation import first_layout
from shards.state.shard_state import ShardState
from shards.wire.event import DomainEvent

Admissions = Mapping[str, Admission | Rejected]


@dataclass(slots=True)
class _Block:
    """One request: its valid topic names, and the refusals of the others by their place."""

    names: list[str]
    places: list[int]
    parsed: list[TopicName]
    slots: list[int]
    refusals: dict[int, Rejected]

    @property
    def namespaces(self) -> list[str]:
        return list(dict.fromkeys([each.namespace_text for each in self.parsed]))


@dataclass(frozen=True, slots=True)
class _Decided:
    """The outcome of a block; ``commit`` is None if nothing had to be proposed."""

    created: int
    existing: int
    commit: asyncio.Future[Commit] | None


class BulkCreation:
    """Creates topics in bulk for one shard, for one term."""

    def __init__(
        self,
        state: ShardState,
        gates: ParentGates,
        bounds: TopicBounds | None,
        turns: BulkTurns,
        pointers: NamePointers,
    ) -> None:
        self._state = state
        self._gates = gates
        self._bounds = bounds
        self._turns = turns
        self._pointers = pointers

    async def create(self, names: Sequence[str]) -> BulkCreateResponse:
        """Create those of ``names`` that are free; return once they are committed.

        Raises:
            InvalidRequest, StaleShardMap, Overloaded, NotLeader: Nothing was created.
            Unavailable: A namespace could not be read. Nothing was created.
            ProposalLost: The topics may have been created. The request may be repeated: a topic
                that exists counts as existing.
        """
        block = self._parse(names)
        async with self._turns.counted():
            async with self._turns.turn():
                decided = await self._decide(block)
            if decided.commit is None:
                await self._state.proposer.confirm()
            else:
                await asyncio.shield(decided.commit)
        return BulkCreateResponse(
            created=decided.created,
            existing=decided.existing,
            refusals=[
                BulkRefusal(place=place, rejection_code=why.code.value, message=why.message)
                for place, why in sorted(block.refusals.items())
            ],
        )

    def _parse(self, names: Sequence[str]) -> _Block:
        _check_size(names)
        block = _Block([], [], [], [], {})
        owned, before = self._state.slots.owned(), ""
        for place, name in enumerate(names):
            if name <= before:
                raise InvalidRequest(
                    f"names must ascend, {name[:200]!r} is behind {before[:200]!r}"
                )
            before = name
            try:
                parsed = parse_topic(name)
            except InvalidName as error:
                block.refusals[place] = Rejected(RejectionCode.INVALID_NAME, str(error))
                continue
            if name != parsed.base_text:
                block.refusals[place] = _not_the_name(name, parsed)
                continue
            slot = slot_of(parsed.routing_key)
            if not owned[slot]:
                raise self._state.slots.refusal(slot)
            block.names.append(name)
            block.places.append(place)
            block.parsed.append(parsed)
            block.slots.append(slot)
        return block

    # Deciding ---------------------------------------------------------------------------------

    async def _decide(self, block: _Block) -> _Decided:
        if not block.names:
            return _Decided(0, 0, None)
        if self._bounds is None:
            return await self._decide_by(NO_BOUNDS, block)
        async with self._bounds.deciding(block.namespaces) as policies:
            return await self._decide_by(policies, block)

    async def _decide_by(self, policies: PoliciesByNamespace, block: _Block) -> _Decided:
        wanted = [WantedParent(ParentKind.NAMESPACE, name) for name in block.namespaces]
        reads: ParentReads = {}
        uses = await self._pointers.ask(block.parsed)
        for _ in range(PARENT_READ_ATTEMPTS_MAX):
            admissions: dict[str, Admission | Rejected] = {}
            unread: list[WantedParent] = []
            for parent, admission in self._gates.admit(wanted, reads).items():
                if admission is None:
                    unread.append(parent)
                else:
                    admissions[parent.name] = admission
            if not unread:
                return self._propose(block, policies, admissions, uses)
            reads.update(await self._gates.read(unread))
        raise Unavailable(f"the gate of namespace {unread[0].name} keeps changing")

    def _propose(
        self,
        block: _Block,
        policies: PoliciesByNamespace,
        admissions: Admissions,
        uses: NameUses,
    ) -> _Decided:
        """Decide and propose. No await between reading the existing names and the proposal."""
        state = self._state
        existing = state.scans.existing_topics(block.names)
        taken = self._twins(block)
        topic_ids = state.ids.mint_all(block.slots)
        time_ms = state.now_ms()
        kinds = {
            namespace: kind_for(policies, namespace, admission.parent_id)
            for namespace, admission in admissions.items()
            if isinstance(admission, Admission)
        }
        added: Counter[str] = Counter()
        events: list[DomainEvent] = []
        for name, parsed, topic_id, place in zip(
            block.names, block.parsed, topic_ids, block.places, strict=True
        ):
            if name in existing:
                continue
            namespace = parsed.namespace_text
            admission = admissions[namespace]
            if isinstance(admission, Rejected):
                block.refusals[place] = admission
                continue
            refusal = self._refusal(parsed, taken, policies, added[namespace])
            freed = refusal or self._pointers.admit(parsed, uses)
            if isinstance(freed, Rejected):
                block.refusals[place] = freed
                continue
            decision = topic.decide(
                None,
                CreateTopic(
                    topic_id, parsed, admission.parent_id, time_ms, broker_kind=kinds[namespace]
                ),
            )
            if isinstance(decision, Rejected):
                block.refusals[place] = decision
                continue
            if not added[namespace]:
                events += admission.events
            added[namespace] += 1
            events += freed.events
            events += decision.events
            events += first_layout(parsed, topic_id, 1, time_ms)
            # The block may have the twin, too.
            taken.add(name)
        if not events:
            return _Decided(0, len(existing), None)
        state.check_not_restoring()
        commit = state.proposer.propose(events, time_ms=time_ms, keeps_states=False)
        self._turns.note(commit)
        if self._bounds is not None:
            for namespace, count in added.items():
                self._bounds.note(namespace, count)
        return _Decided(added.total(), len(existing), commit)

    def _twins(self, block: _Block) -> set[str]:
        """Return the existing topics whose names exclude some of the block's.

        Nearly no shard has scalable topics, and classic ones have no twins there.
        """
        has_scalable = self._state.reads.total(StateKind.SCALABLE_TOPIC) > 0
        if not has_scalable and not any(each.domain is Domain.TOPIC for each in block.parsed):
            return set()
        twins = sorted({topic.twin_of(each) for each in block.parsed} - {""})
        return self._state.scans.existing_topics(twins) if twins else set()

    def _refusal(
        self, name: TopicName, taken: set[str], policies: PoliciesByNamespace, added: int
    ) -> Rejected | None:
        if topic.twin_of(name) in taken:
            return topic.taken_by_twin(name)
        if self._bounds is None:
            return None
        namespace = name.namespace_text
        return self._bounds.check(namespace, policies[namespace], added)


def _check_size(names: Sequence[str]) -> None:
    if not 0 < len(names) <= BULK_NAMES_MAX:
        raise InvalidRequest(f"{len(names)} names in bulk, 1 to {BULK_NAMES_MAX} are allowed")
    size_bytes = sum(map(len, names))
    if size_bytes > BULK_NAMES_BYTES_MAX // 4:
        size_bytes = sum([len(name.encode()) for name in names])
    if size_bytes > BULK_NAMES_BYTES_MAX:
        raise InvalidRequest(
            f"names of {size_bytes} bytes in bulk, at most {BULK_NAMES_BYTES_MAX} are allowed"
        )


def _not_the_name(name: str, parsed: TopicName) -> Rejected:
    """Return why ``name``, which parses as a name, is not a topic's canonical name."""
    return topic.check_creatable(parsed, 0, ()) or Rejected(
        RejectionCode.INVALID_NAME, f"{name[:200]!r} is not as {parsed.base_text!r} is spelled out"
    )
