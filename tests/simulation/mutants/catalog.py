"""All mutants, by the component whose guard they remove."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.mutants import capacity, engine
from tests.simulation.mutants.mutant import Mutant

COMPONENTS: Mapping[str, tuple[Mutant, ...]] = {
    "The engine": engine.MUTANTS,
    "Leases and the capacity ledger": capacity.MUTANTS,
}

MUTANTS = tuple(mutant for mutants in COMPONENTS.values() for mutant in mutants)

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
assert len(BY_NAME) == len(MUTANTS), "two mutants have one name"
