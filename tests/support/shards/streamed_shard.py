"""A shard that is the home of the metadata of its brokers, over real change streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.governance.policies import Policies
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Kind
from tests.support.shards.harness import Harness, in_shard
from tests.support.shards.streamed_homes import StreamedHomes

LED_S = 6.0
"""Behind it a leader knows every possible subscriber."""

Scenario = Callable[[Harness, StreamedHomes], Coroutine[Any, Any, None]]


def in_streamed_shard(directory: Path, scenario: Scenario, *, units: int = 50) -> None:
    """Run ``scenario`` in virtual time. ``units`` is how many each broker's lease has."""
    homes = StreamedHomes()

    async def live(shard: Harness) -> None:
        homes.replica_of = lambda _shard_id: shard.replica
        await asyncio.sleep(LED_S)
        await scenario(shard, homes)

    with homes.served():
        in_shard(directory, live, homes=homes, units=units)


async def set_policies(
    shard: Harness, kind: Kind, name: str, policies: Policies, timeout_ms: int = 10_000
) -> None:
    """Write policies and return once that is effective."""
    body = pb.SetPolicies(kind=kind, name=name, policies=policies_to_proto(policies))
    request = pb.ExecuteRequest(
        commands=[pb.Command(set_policies=body)], consistency=pb.CONSISTENCY_EFFECTIVE
    )
    response = await shard.ask(timeout_ms, execute=request)
    assert not response.execute.results[0].rejection_code
