"""How many topics a second change hands."""

from __future__ import annotations

import pytest

from nextgen.migration.adoption.pace import Pace


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("per_second", "size"), [(200, 50), (4, 1), (3, 1), (100_000, 300)])
def test_batches_are_a_quarter_of_a_second(per_second: int, size: int) -> None:
    pace = Pace(per_second)

    batches = list(pace.batches(range(1_000), at_most=300))

    assert len(batches[0]) == size
    assert [each for batch in batches for each in batch] == list(range(1_000))


@pytest.mark.parametrize("per_second", [1, 3, 200])
async def test_no_second_has_more(per_second: int) -> None:
    time = Time()
    pace = Pace(per_second, clock=time.clock, sleep=time.sleep)
    began: list[float] = []
    for batch in pace.batches(range(10 * per_second), at_most=1_000):
        await pace.take(len(batch))
        began += [time.now] * len(batch)

    for at in began:
        assert sum(at <= each < at + 0.999 for each in began) <= per_second + len(began) // 40
    assert 9 <= began[-1] - began[0] <= 10


async def test_a_pause_is_not_made_up_for() -> None:
    time = Time()
    pace = Pace(10, clock=time.clock, sleep=time.sleep)
    await pace.take(2)
    time.now += 60

    await pace.take(2)
    await pace.take(2)

    assert time.now == pytest.approx(160.2)
