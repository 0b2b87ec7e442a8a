"""A fault that is planted into a green history is found, and named. ``pytest -k planted``."""

from __future__ import annotations

from functools import cache

import pytest

from nextgen.harness.history import History, check
from tests.support.history.plants import MOVE_PLANTS, PLANTS, RENAME_PLANTS, Plant
from tests.support.history.world import Size, World

SEEDS = range(3)
ALL_PLANTS = (*PLANTS, *RENAME_PLANTS, *MOVE_PLANTS)


@cache
def green_history(seed: int) -> History:
    history = World(seed, Size(operations=600, with_command_ids=seed % 2 == 0, moves=16)).history()
    assert check(history).findings == ()
    return history


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("plant", ALL_PLANTS, ids=lambda plant: plant.name)
def test_a_planted_fault_is_found(plant: Plant, seed: int) -> None:
    history = plant.spoil(green_history(seed))

    verdict = check(history)

    assert not verdict.is_green
    found = [each for each in verdict.findings if each.kind is plant.kind]
    assert plant.check in {finding.check for finding in found}, verdict.findings


@pytest.mark.parametrize("seed", SEEDS[:1])
@pytest.mark.parametrize("plant", ALL_PLANTS, ids=lambda plant: plant.name)
def test_a_planted_fault_is_named(plant: Plant, seed: int) -> None:
    """By operations or events that exist, and in words."""
    history = plant.spoil(green_history(seed))

    verdict = check(history)

    finding = next(each for each in verdict.findings if each.check == plant.check)
    operations = {op.name for op in history.operations} | {op.name for op in history.publishes}
    operations |= {f"{r.producer}#{r.sequence} of {r.topic}" for r in history.received}
    assert set(finding.operations) <= operations
    assert set(finding.events) <= {event.name for event in history.log} | {
        f"{view.shard}:{view.position}" for view in history.view_hashes
    }
    assert finding.message
    assert finding.operations or finding.events or finding.shard
