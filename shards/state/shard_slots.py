"""Which slots a shard has, and ids that carry a slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nextgen.kernel.errors import StaleShardMap
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import ID_ENTROPY_BYTES, mint_id
from shards.domain.shard import NO_SLOTS, Shard
from shards.state.state_reads import StateReads


class ShardSlots:
    """The slots of one shard, for one term. They are read once and kept."""

    def __init__(self, shard_id: int, reads: StateReads) -> None:
        self._shard_id = shard_id
        self._reads = reads
        self._slots_of: Shard | None = None
        self._slots = NO_SLOTS

    def owned(self) -> bytes:
        """Return one byte per slot, 1 for the slots that this shard has."""
        own = self._reads.load_shard()
        if own is not self._slots_of:
            self._slots = NO_SLOTS if own is None else own.slot_map()
            self._slots_of = own
        return self._slots

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
            StaleShardMap: It does not; the caller routed by another map.
        """
        if not self.has(slot):
            raise StaleShardMap(
                f"shard {self._shard_id} does not have slot {slot}", self.map_version
            )

    def check_key(self, routing_key: str) -> None:
        """Check that the slot of ``routing_key`` belongs to this shard; raises as ``check``."""
        self.check(slot_of(routing_key))


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
