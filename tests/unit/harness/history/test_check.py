"""What a right system makes is green, whatever went wrong around it."""

from __future__ import annotations

import pytest

from nextgen.harness.history import check
from tests.support.history.world import Size, World

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_of_a_right_system_is_green(seed: int) -> None:
    size = Size(trouble=(seed % 4) * 0.1, with_command_ids=seed % 3 != 0, gap_ms=0.2 + seed % 5)
    history = World(seed, size).history()

    verdict = check(history)

    assert verdict.findings == ()
    assert verdict.is_green
    assert verdict.operations == len(history.operations) + len(history.publishes)
    assert verdict.acked > 50
