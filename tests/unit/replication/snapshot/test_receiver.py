"""What a receiver of a snapshot takes in at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from nextgen.kernel.limits.snapshot import SNAPSHOT_CHUNKS_WAITING_MAX
from nextgen.replication.ports import NodeId
from nextgen.replication.snapshot.receiver import SnapshotReceiver
from nextgen.replication.view.turns import ViewTurns
from tests.support.simulated.virtual_time import VirtualWorker, run_virtual


def chunk(round_: int) -> dict[str, Any]:
    """Return a chunk of a snapshot that the receiver has applied, so that it is only answered."""
    return {
        "term": 1,
        "index": 1,
        "index_term": 1,
        "position": 1,
        "total": 1,
        "file_checksum": 0,
        "offset": 0,
        "data": b"",
        "round": round_,
    }


@pytest.mark.parametrize("more", [0, 1])
def test_snapshot_chunks_waiting_max_are_taken_in_and_one_more_must_be_sent_again(
    more: int,
) -> None:
    answered: list[int] = []
    replica: Any = SimpleNamespace(
        core=SimpleNamespace(term=1),
        applier=SimpleNamespace(applied=SimpleNamespace(index=1)),
        group_id="group",
        send=lambda _, answer: answered.append(answer["round"]),
    )
    files: Any = SimpleNamespace(
        partial=SimpleNamespace(drop_if_behind=lambda _: None, holds=lambda _: False)
    )

    async def scenario() -> None:
        worker = VirtualWorker(lambda: 1.0)
        receiver = SnapshotReceiver(
            replica, replica, files, worker, turns=ViewTurns(lambda: worker), on_broken=pytest.fail
        )
        for round_ in range(SNAPSHOT_CHUNKS_WAITING_MAX + more):
            receiver.on_chunk(NodeId("leader"), chunk(round_))
        await asyncio.sleep(1)

    run_virtual(scenario)

    assert answered == list(range(SNAPSHOT_CHUNKS_WAITING_MAX))
