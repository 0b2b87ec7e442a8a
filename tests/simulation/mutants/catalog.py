"""All mutants, by the component whose guard they remove."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.mutants import (
    adoption,
    auto_scale,
    balance,
    broker_kinds,
    capacity,
    creations,
    effective,
    engine,
    layouts,
    ledgers,
    lookups,
    mends,
    peers,
    proofs,
    renames,
    replicas,
    scalable_topics,
    sessions,
    shadows,
    slot_moves,
    topic_lists,
    topics,
)
from tests.simulation.mutants.mutant import Mutant

COMPONENTS: Mapping[str, tuple[Mutant, ...]] = {
    "Faults that were found by reading, put back": mends.MUTANTS,
    "The engine": engine.MUTANTS,
    "The Raft port": peers.MUTANTS,
    "Calls between processes": proofs.MUTANTS,
    "A node's replicas": replicas.MUTANTS,
    "Brokers' ledgers": ledgers.MUTANTS,
    "Leases and the capacity ledger": capacity.MUTANTS,
    "The balance": balance.MUTANTS,
    "Kinds of brokers": broker_kinds.MUTANTS,
    "Broker sessions": sessions.MUTANTS,
    "Answers to lookups": lookups.MUTANTS,
    "Effective writes": effective.MUTANTS,
    "How topics come into being": creations.MUTANTS,
    "What operators do to topics": topics.MUTANTS,
    "Topic lists by pattern": topic_lists.MUTANTS,
    "Scalable topics": scalable_topics.MUTANTS + auto_scale.MUTANTS,
    "Layouts of scalable topics": layouts.MUTANTS,
    "Shadow topics": shadows.MUTANTS,
    "Moves of slots": slot_moves.MUTANTS,
    "Renames of topics": renames.MUTANTS,
    "Namespaces that are handed over": adoption.MUTANTS,
}

MUTANTS = tuple(mutant for mutants in COMPONENTS.values() for mutant in mutants)

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
assert len(BY_NAME) == len(MUTANTS), "two mutants have one name"
