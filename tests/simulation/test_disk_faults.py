"""How long a disk of the cluster's simulation hangs once faults have ended."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from tests.support.cluster_simulation.faults.disks import LAST_HANG_S, DiskFaults
from tests.support.simulated.virtual_time import IsolatedLoop, run_virtual


class FakeSimulation:
    """As much as a hang looks at."""

    def __init__(self) -> None:
        self.loop: Any = asyncio.get_running_loop()


@pytest.mark.parametrize(
    ("hang_s", "others_over_after_s", "ends_by_itself", "took_s"),
    [
        (300.0, 5.0, False, 5.0 + LAST_HANG_S),
        (5.0 + LAST_HANG_S, 5.0, True, 5.0 + LAST_HANG_S),
        (12.0, 5.0, True, 12.0),
        (12.0, 50.0, True, 12.0),
        (300.0, 0.0, False, LAST_HANG_S),
    ],
)
def test_a_hang_outlasts_all_other_faults_by_a_bounded_time(
    hang_s: float, others_over_after_s: float, ends_by_itself: bool, took_s: float
) -> None:
    async def come_back(*_: object) -> None:
        """Nothing died."""

    async def main() -> None:
        simulation: Any = FakeSimulation()
        faults = DiskFaults(simulation, random.Random(1), Counter(), come_back)
        began_s = simulation.loop.now_s
        simulation.loop.call_later(others_over_after_s, faults.others_are_over)

        ended = await faults._ends_by_itself(hang_s)

        assert ended is ends_by_itself
        assert simulation.loop.now_s - began_s == pytest.approx(took_s, abs=0.001)

    run_virtual(main, loop=IsolatedLoop)
