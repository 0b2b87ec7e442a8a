"""Which slots a shard has, and ids that carry a slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from nextgen.kernel.errors import StaleShardMap
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import ID_ENTROPY_BYTES, mint_id
from shards.domain.shard import NO_SLOTS, Shard
from shards.domain.slots.events import IncomingSlots, OutgoingSlots
from shards.projections.foreign import NONE_FOREIGN, ForeignSlots, foreign_slots
from shards.projections.slot_refusal import slot_refusal
from shards.state.state_reads import StateReads


class ShardSlots:
    """The slots of one shard, for one term, pending moves included."""

    def __init__(self, shard_id: int, reads: StateReads) -> None:
        self._shard_id = shard_id
        self._reads = reads
        self._slots_of: Shard | None = None
        self._slots = NO_SLOTS
        self._foreign = NONE_FOREIGN
        self.changed = asyncio.Event()
        """Set at the next change of the shard's record, and then replaced."""

    def owned(self) -> bytes:
        """Return one byte per slot, 1 for the slots that this shard has.

        The same object as before while they are the same.
        """
        self._look()
        return self._slots

    def foreign(self) -> ForeignSlots:
        """Return the slots that the shard does not have, though there may be rows of them here."""
        self._look()
        return self._foreign

    def outgoing(self) -> Sequence[OutgoingSlots]:
        """Return the moves of slots away from this shard of which rows may be left here."""
        self._look()
        return () if self._slots_of is None else self._slots_of.outgoing

    def incoming(self) -> Sequence[IncomingSlots]:
        """Return the moves of slots to this shard that are not adopted."""
        self._look()
        return () if self._slots_of is None else self._slots_of.incoming

    @property
    def map_version(self) -> int:
        """The version of the shard map that gave this shard its slots, 0 for none."""
        own = self._reads.load_shard()
        return 0 if own is None else own.shard_map_version

    def has(self, slot: int) -> bool:
        return self.owned()[slot] == 1

    def check(self, slot: int) -> None:
        """Check that ``slot`` belongs to this shard.

        Raises:
            StaleShardMap: It does not; the caller routed by another map. It says where the slot
                went, if it left by a move whose rows are not all removed yet.
            SlotsComing: It does not yet.
        """
        if not self.has(slot):
            raise self.refusal(slot)

    def check_key(self, routing_key: str) -> None:
        """Check that the slot of ``routing_key`` belongs to this shard; raises as ``check``."""
        self.check(slot_of(routing_key))

    def check_all(self, slots: Iterable[int | None]) -> None:
        """Check that slots belong to this shard, None to none; raises as ``check``.

        Nothing is checked in a shard that never took part in a move: what it has was its own when
        the request began.
        """
        own = self._reads.load_shard()
        if own is None or not own.has_moved:
            return
        owned = self.owned()
        for slot in slots:
            if slot is not None and not owned[slot]:
                raise self.refusal(slot)

    def refusal(self, slot: int) -> StaleShardMap:
        """Return why nothing is decided here about ``slot``, which is not the shard's."""
        return slot_refusal(self._shard_id, self._reads.load_shard(), slot)

    def note_changed(self) -> None:
        """Set ``changed``. Called with every proposal that may bring other slots."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def _look(self) -> None:
        own = self._reads.load_shard()
        if own is self._slots_of:
            return
        if own is None or self._slots_of is None or own.ranges != self._slots_of.ranges:
            self._slots = NO_SLOTS if own is None else own.slot_map()
        self._foreign = foreign_slots(own)
        self._slots_of = own


class IdMint:
    """Makes ids of tenants, namespaces, topics and sessions; ``entropy`` returns random bytes."""

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy

    def mint(self, routing_key: str) -> str:
        """Return a fresh id that carries the slot of ``routing_key``."""
        return mint_id(slot_of(routing_key), self._entropy(ID_ENTROPY_BYTES))

    def mint_all(self, slots: Sequence[int]) -> list[str]:
        """Return one fresh id for each of ``slots``."""
        entropy = self._entropy(ID_ENTROPY_BYTES * len(slots))
        return [
            mint_id(slot, entropy[start : start + ID_ENTROPY_BYTES])
            for slot, start in zip(slots, range(0, len(entropy), ID_ENTROPY_BYTES), strict=True)
        ]
