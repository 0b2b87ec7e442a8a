"""The deadline of a request that takes several calls, and the answers of calls made at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from nextgen.kernel.errors import DeadlineExceeded, Definite, InvalidRequest, Unavailable

Answer = TypeVar("Answer")


class Deadline:
    """When a request must be answered, however many calls it takes."""

    def __init__(self, timeout_ms: int) -> None:
        self._now = asyncio.get_running_loop().time
        self._at = self._now() + timeout_ms / 1_000

    @property
    def is_over(self) -> bool:
        return self._now() >= self._at

    def remaining_ms(self, progress: str = "before anything was set") -> int:
        """Return the remaining time, at least 1.

        Raises:
            Unavailable: No time is left; the message has the ``progress`` of the request.
        """
        remaining_ms = round(1_000 * (self._at - self._now()))
        if remaining_ms < 1:
            raise Unavailable(f"the request's time was over {progress}")
        return remaining_ms


async def all_of(parts: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """Run all parts to their end and return their answers.

    Raises:
        MetadataError: The worst error of the parts: an indefinite one before a definite one.
    """
    outcomes = await asyncio.gather(*parts, return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if errors:
        raise next((error for error in errors if not isinstance(error, Definite)), errors[0])
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


async def all_written(parts: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """As ``all_of``, for writes: if only some parts failed the whole is indefinite."""
    wanted = list(parts)
    if len(wanted) == 1:
        return [await wanted[0]]
    done = 0

    async def counted(part: Coroutine[Any, Any, Answer]) -> Answer:
        nonlocal done
        answer = await part
        done += 1
        return answer

    try:
        return await all_of([counted(part) for part in wanted])
    except Definite as error:
        if done and not isinstance(error, InvalidRequest):
            raise DeadlineExceeded(f"{done} shards did their part, another: {error}") from error
        raise
