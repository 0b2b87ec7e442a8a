"""Tests that are scenarios: coroutines that a runner such as ``in_shard`` carries out in a world.

@run_by(in_shard, units=1_000)
async def test_a_topic_is_assigned_once(shard: Harness) -> None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any

Scenario = Callable[..., Coroutine[Any, Any, None]]

DIRECTORY = "directory"
"""The name of a runner's first parameter if it wants a directory of its own."""


def run_by(runner: Callable[..., Any], *given: Any, **settings: Any) -> Callable[[Scenario], Any]:
    """Make a test of a scenario: it passes if ``runner`` carries the scenario out without an error.

    The scenario's positional parameters come from the runner; those behind a ``*`` are fixtures
    and parameters of the test.
    """
    wants_directory = DIRECTORY in inspect.signature(runner).parameters

    def decorate(scenario: Scenario) -> Any:
        parameters = inspect.signature(scenario).parameters.values()
        own = [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
        names = [each.name for each in own]
        wanted = [inspect.Parameter("tmp_path", inspect.Parameter.KEYWORD_ONLY), *own]
        shown = wanted if wants_directory and "tmp_path" not in names else own

        @wraps(scenario)
        def test(**fixtures: Any) -> None:
            directory = [fixtures["tmp_path"]] if wants_directory else []
            passed = {name: fixtures[name] for name in names}
            runner(*directory, partial(scenario, **passed), *given, **settings)

        test.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return test

    return decorate
