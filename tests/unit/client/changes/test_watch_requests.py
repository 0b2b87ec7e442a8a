"""What a subscriber says on one stream: in order, renewals last, bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.client.changes import watch_places, watch_requests
from nextgen.client.changes.watch_places import WatchPlaces
from nextgen.client.changes.watch_requests import WatchRequests
from nextgen.kernel.errors import Overloaded
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import WatchAdd, WatchShardRequest
from tests.support.shards.watch_world import Recorder


class Call:
    """Notes what is written."""

    def __init__(self) -> None:
        self.written: list[WatchShardRequest] = []

    async def write(self, request: WatchShardRequest) -> None:
        self.written.append(request)
        await asyncio.sleep(0)


def said(requests: WatchRequests) -> list[WatchShardRequest]:
    """Return everything that is said until nothing waits."""

    async def main() -> list[WatchShardRequest]:
        call: Any = Call()
        writing = asyncio.create_task(requests.write_to(call))
        for _ in range(50):
            await asyncio.sleep(0)
        if writing.done():
            writing.result()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        written: list[WatchShardRequest] = call.written
        return written

    return asyncio.run(main())


def test_the_opening_comes_first_and_only_the_newest_renewal_last() -> None:
    requests = WatchRequests(3, "me")
    requests.renew(1, 10)
    requests.add(WatchAdd(watch_id=1))
    requests.renew(2, 20)
    requests.remove(1)
    written = said(requests)
    assert [request.WhichOneof("body") for request in written] == ["open", "add", "remove", "renew"]
    assert (written[0].open.shard_id, written[0].open.subscriber_id) == (3, "me")
    assert (written[3].renew.acked_position, written[3].renew.asked_at_ms) == (2, 20)


@pytest.mark.parametrize("excess", [0, 1])
def test_a_shard_that_reads_nothing_is_left(monkeypatch: pytest.MonkeyPatch, excess: int) -> None:
    monkeypatch.setattr(watch_requests, "_WAITING_MAX", 4)
    requests = WatchRequests(1, "me")
    for watch_id in range(1, 5 + excess):
        requests.remove(watch_id)
    if excess:
        with pytest.raises(Overloaded):
            said(requests)
    else:
        assert len(said(requests)) == 5


@pytest.mark.parametrize("excess", [0, 1])
def test_a_stream_has_so_many_watches(monkeypatch: pytest.MonkeyPatch, excess: int) -> None:
    monkeypatch.setattr(watch_places, "WATCHES_PER_STREAM_MAX", 3)
    places = WatchPlaces()
    wanted: dict[str, Any] = {
        "kinds": [KIND_TOPIC],
        "prefix": "",
        "names": (),
        "from_position": 0,
        "without_snapshot": False,
        "leased": False,
        "on_lease": None,
    }
    ids = [places.add(Recorder(), **wanted) for _ in range(2 + excess)]
    assert ids == list(range(1, 3 + excess))
    if not excess:
        assert places.add(Recorder(), **wanted) == 3
    with pytest.raises(Overloaded):
        places.add(Recorder(), **wanted)
    assert places.remove(1)
    assert not places.remove(1)
    assert places.add(Recorder(), **wanted) == 4
