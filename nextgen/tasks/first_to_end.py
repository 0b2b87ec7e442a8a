"""Runs coroutines concurrently until the first of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from nextgen.tasks.background import join


async def run_until_first(*works: Coroutine[Any, Any, Any]) -> None:
    """Run all ``works`` until one of them ends or fails, then cancel the others and wait for them.

    Raises the error of one that ended by itself, if there is one.
    """
    tasks = [join(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
