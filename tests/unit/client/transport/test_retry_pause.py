"""A refusal that says when to come back: callers wait that long, or give up at once."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.cluster.link import ChangeListener
from nextgen.client.cluster.view import ClusterView
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ClusterSource, ShardRouter
from nextgen.client.transport.retry_pause import retry_pause_ms
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual


class Link:
    """Of a process that leads the shard itself, and so needs no map."""

    view = ClusterView()

    def on_change(self, listener: ChangeListener) -> None:
        pass


class RefusingShard:
    """A shard that is led here and refuses its first requests with ``error``."""

    def __init__(self, error: MetadataError, refusals: int = 1) -> None:
        self.asked_at_ms: list[float] = []
        self._error = error
        self._refusals = refusals

    async def answer(self, request: ShardRequest) -> ShardResponse:
        self.asked_at_ms.append(asyncio.get_running_loop().time() * 1_000)
        if len(self.asked_at_ms) <= self._refusals:
            raise self._error
        return ShardResponse()

    def router(self) -> ShardRouter:
        pool = cast(ExchangePool, None)  # Nothing leaves this process.
        return ShardRouter(cast(ClusterSource, Link()), pool, lambda _: self.answer)


@given(backoff_ms=st.floats(0, 1_000), after_ms=st.integers(0, 60_000))
def test_a_pause_is_never_shorter_than_what_the_refusal_says(
    backoff_ms: float, after_ms: int
) -> None:
    pause_ms = retry_pause_ms(Overloaded("full", after_ms), backoff_ms)

    assert max(backoff_ms / 2, after_ms) <= pause_ms <= max(backoff_ms, 1.5 * after_ms)


def test_an_error_that_says_nothing_has_the_callers_own_pause() -> None:
    assert 50 <= retry_pause_ms(Unavailable("no leader"), 100) <= 100


def test_callers_refused_together_do_not_come_back_together() -> None:
    pauses = {retry_pause_ms(Overloaded("full", 1_000), 20) for _ in range(10)}

    assert len(pauses) > 1


@run_by(run_virtual)
async def test_router_waits_as_long_as_the_refusal_says_before_the_next_attempt() -> None:
    shard = RefusingShard(Overloaded("full", 700))

    await shard.router().call(1, ShardRequest(), timeout_ms=5_000)

    first, second = shard.asked_at_ms
    assert 700 <= second - first <= 1_060


@run_by(run_virtual)
async def test_router_gives_up_at_once_when_the_caller_has_less_time_than_that() -> None:
    shard = RefusingShard(Overloaded("full", 700))
    began_ms = asyncio.get_running_loop().time() * 1_000

    with pytest.raises(Overloaded) as refused:
        await shard.router().call(1, ShardRequest(), timeout_ms=600)

    assert refused.value.retry_after_ms == 700
    assert asyncio.get_running_loop().time() * 1_000 - began_ms < 1
    assert len(shard.asked_at_ms) == 1
