"""``run_by``: a test passes only if its scenario was carried out to its end."""

import asyncio
import inspect
from pathlib import Path

import pytest

from tests.support.scenarios import run_by


def in_world(scenario, world="world"):
    asyncio.run(scenario(world))


def in_directory(directory, scenario):
    asyncio.run(scenario(directory))


def test_an_error_of_the_scenario_fails_the_test():
    @run_by(in_world)
    async def scenario(world):
        assert world == "another"

    with pytest.raises(AssertionError):
        scenario()


@pytest.mark.parametrize("number", [1, 2])
def test_a_scenario_gets_its_world_and_the_fixtures_that_it_names(number, tmp_path):
    seen = []

    @run_by(in_world, world="mine")
    async def scenario(world, *, number, tmp_path):
        seen.append((world, number, tmp_path))

    scenario(number=number, tmp_path=tmp_path)

    assert seen == [("mine", number, tmp_path)]
    assert list(inspect.signature(scenario).parameters) == ["number", "tmp_path"]


def test_a_runner_that_wants_a_directory_is_given_the_tests_own(tmp_path: Path):
    seen = []

    @run_by(in_directory)
    async def scenario(directory):
        seen.append(directory)

    scenario(tmp_path=tmp_path)

    assert seen == [tmp_path]
    assert list(inspect.signature(scenario).parameters) == ["tmp_path"]
