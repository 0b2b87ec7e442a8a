"""Several waits at once, each with an outcome of its own."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from nextgen.kernel.errors import MetadataError
from nextgen.tasks.groups import TaskGroup

T = TypeVar("T")


async def gather(waits: Sequence[Coroutine[Any, Any, T]]) -> list[T | MetadataError]:
    """Run ``waits`` concurrently; return their results in order, errors as values.

    An error of another kind than ``MetadataError`` cancels the others and is raised.
    """

    async def outcome(wait: Coroutine[Any, Any, T]) -> T | MetadataError:
        try:
            return await wait
        except MetadataError as error:
            return error

    async with TaskGroup() as group:
        tasks = [group.create_task(outcome(wait)) for wait in waits]
    return [task.result() for task in tasks]
