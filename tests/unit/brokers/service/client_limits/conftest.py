"""Rates are tried in virtual time: twenty seconds pass in milliseconds, the same each time."""

from tests.support.simulated.virtual_time import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
