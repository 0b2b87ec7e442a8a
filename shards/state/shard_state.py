"""The state of one shard as its leader decides on it: the view, and what is pending on top.

    load ──▶ decide (pure) ──▶ propose        no await in between: that is the lock

    StateReads    one key       ╮               ╭ StateCache   pending, then read before
    StateScans    many keys     ┼─ ShardTerm  ──┤
    TopicNames    renamed       │               │
    ShardSlots    own slots     │  over or not  ╰ Query        the view
    CommandOutcomes  repeats    │
    Proposer      writes        ╯

Everything on the left but ``Proposer.confirm`` is a plain function, so a caller that awaits nothing
decides on a state that no other decision can change before its proposal. A caller takes the parts
that it uses. All parts live for one term; uncommitted proposals are discarded with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.events.decider import Accepted
from nextgen.replication.ports import Commit, ReplicatedLog
from shards.domain import shard
from shards.domain.shard import AdoptSlots
from shards.domain.slots.events import SlotRanges
from shards.projections.rows import Query
from shards.state.command_outcomes import CommandOutcomes
from shards.state.proposer import Proposer
from shards.state.shard_slots import IdMint, ShardSlots
from shards.state.shard_term import ShardTerm
from shards.state.state_cache import StateCache, as_many_as_alone
from shards.state.state_reads import StateReads
from shards.state.state_scans import StateScans
from shards.state.topic_names import TopicNames


class ShardState:
    """The parts of one leader's state, for one term. All run on the event loop.

    ``query`` reads the view; ``clock_ms`` and ``entropy`` are what the leader stamps commands
    with, and by ``monotonic`` seconds it keeps their outcomes. ``cached_max`` is for the
    ``StateCache``.
    """

    def __init__(
        self,
        shard_id: int,
        term: int,
        log: ReplicatedLog,
        query: Query,
        clock_ms: Callable[[], int],
        entropy: Callable[[int], bytes],
        monotonic: Callable[[], float],
        cached_max: Callable[[], int] = as_many_as_alone,
    ) -> None:
        self.shard_id = shard_id
        self.term = ShardTerm(shard_id, term)
        self.log = log
        self.now_ms = clock_ms
        self.monotonic = monotonic
        cache = self.cache = StateCache(cached_max)
        self.reads = StateReads(self.term, cache, query)
        self.slots = ShardSlots(shard_id, self.reads)
        self.names = TopicNames(shard_id, self.reads, self.slots, clock_ms)
        self.scans = StateScans(self.term, cache, query, self.slots.foreign)
        self.ids = IdMint(entropy)
        self.outcomes = CommandOutcomes(self.term, log, query, monotonic)
        self.proposer = Proposer(
            self.term, log, cache, self.reads, self.slots, self.outcomes, clock_ms
        )

    def __repr__(self) -> str:
        return f"<ShardState {self.proposer!r}>"

    @property
    def position(self) -> int:
        """The last event position that is known to be committed."""
        return self.proposer.position

    @property
    def least_epoch(self) -> int:
        """The least epoch of an assignment or a session that is decided at this moment."""
        own = self.reads.load_shard()
        return max(self.term.least_epoch, 0 if own is None else own.least_epoch)

    def check_not_restoring(self) -> None:
        """Check that no restore from a backup is under way, BEFORE an inventory is changed.

        Raises:
            Unavailable: One is: what it has not brought yet must not be created by others.
        """
        own = self.reads.load_shard()
        if own is not None and own.is_restoring:
            raise Unavailable(
                f"shard {self.shard_id} is being restored from backup {own.restore_id}: nothing "
                "else is created, changed or deleted until 'nextgen restore' has ended"
            )

    def adopt_first_slots(self, ranges: SlotRanges, version: int) -> asyncio.Future[Commit] | None:
        """Adopt the slots that the shard map gives this shard, if its log has never adopted any.

        Returns None if it has: then the log alone says which slots the shard has, whatever the map
        says. Call it when a term begins, BEFORE anything else is decided.
        """
        decision = shard.decide(self.reads.load_shard(), AdoptSlots(ranges, version))
        assert isinstance(decision, Accepted), f"the shard map is malformed: {decision.message}"
        return self.proposer.propose(decision.events) if decision.events else None
