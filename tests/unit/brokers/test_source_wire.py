"""Requests and updates of a stream between brokers, as messages: whole, in parts, and nonsense."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from brokers.adapters.cluster.source_wire import (
    UpdateReader,
    messages_of,
    request_to_proto,
    requests_from_proto,
)
from brokers.domain.position import BEFORE_ALL, Position
from brokers.ports.ledger import Entry, Extent
from brokers.ports.source_feed import SourceAway, SourceChange, SourceState
from brokers.ports.source_stream import (
    FeedCredit,
    FollowSource,
    ShadowReport,
    SourceChanged,
    SourceFed,
    SourceLeft,
    SourceUpdate,
    UnfollowSource,
)
from nextgen.kernel.errors import ConnectionLost, InvalidRequest
from nextgen.kernel.limits import shadow as limits
from nextgen.kernel.limits.cluster import GRPC_MESSAGE_BYTES_MAX
from protos.nextgen.v1 import broker_service_pb2 as wire

REQUESTS = [
    FollowSource(1, "persistent://t/ns/a", "persistent://t/ns/b"),
    UnfollowSource(2, "persistent://t/ns/b"),
    UnfollowSource(3),
    ShadowReport(4, "persistent://t/ns/b", Position(5, 6)),
    ShadowReport(4, "persistent://t/ns/b", BEFORE_ALL),
    ShadowReport(4, "persistent://t/ns/b", None),
    FeedCredit(7),
]


def entry(entry_id: int, size: int = 10) -> Entry:
    return Entry(Position(5, entry_id), b"x" * size, 3, 1_000 + entry_id, "p", entry_id - 1)


def extents(count: int, begin: int = 5) -> list[Extent]:
    return [Extent(begin + each, 3, 300, 10, 20) for each in range(count)]


UPDATES: list[SourceUpdate] = [
    SourceFed(1, ("persistent://t/ns/b",), SourceState("id", "p3", 9, [], {})),
    SourceFed(1, ("a", "b"), SourceState("id", "", 9, extents(2), {"schema/0": b"s"})),
    SourceChanged(2, SourceChange(first_ledger_id=-1)),
    SourceChanged(2, SourceChange(5, extents(1), [entry(1), entry(2)])),
    SourceChanged(2, SourceChange(5, extents(2), [], {"terminated": b""})),
    SourceChanged(2, SourceChange(5, (), (), {})),
    SourceLeft(3, (), SourceAway.MOVED, "why"),
    SourceLeft(3, ("a",), SourceAway.UNLISTED, ""),
]


def sent(updates: list[SourceUpdate]) -> list[wire.SourceUpdates]:
    return [
        wire.SourceUpdates.FromString(message.SerializeToString())
        for message in messages_of(updates)
    ]


def read(messages: list[wire.SourceUpdates]) -> list[SourceUpdate]:
    reader = UpdateReader()
    return [update for message in messages for update in reader.updates(message)]


def plain(update: SourceUpdate) -> Any:
    """Return an update with lists for all its sequences."""
    match update:
        case SourceFed():
            state = update.state
            ids = (state.topic_id, state.unit, state.epoch)
            return (update.feed_id, list(update.shadows), ids, list(state.extents), state.facts)
        case SourceChanged():
            change = update.change
            parts = (list(change.extents), list(change.entries), change.facts)
            return (update.feed_id, change.first_ledger_id, *parts)
        case SourceLeft():
            return (update.feed_id, list(update.shadows), update.reason, update.message)


def test_requests_arrive_as_they_were_sent() -> None:
    message = wire.SourceRequests(requests=map(request_to_proto, REQUESTS))

    arrived = requests_from_proto(wire.SourceRequests.FromString(message.SerializeToString()))

    assert list(arrived) == REQUESTS


def test_updates_arrive_as_they_were_sent() -> None:
    messages = sent(UPDATES)

    assert len(messages) == 1
    assert [plain(each) for each in read(messages)] == [plain(each) for each in UPDATES]


def test_large_updates_come_in_parts_that_fit_into_messages() -> None:
    """FEED_MESSAGE_BYTES, and what may exceed it."""
    facts = {f"schema/{number}": b"s" * 200_000 for number in range(40)}
    names = tuple(f"persistent://t/ns/{'n' * 900}-{number}" for number in range(1_000))
    large: list[SourceUpdate] = [
        SourceFed(1, names, SourceState("id", "", 9, extents(20_000), facts)),
        SourceChanged(1, SourceChange(5, extents(20_000), (), facts)),
        SourceChanged(
            1,
            SourceChange(
                5,
                extents(1),
                [entry(0, limits.FED_BYTES_MAX - 9)] + [entry(each, 1) for each in range(1, 3)],
            ),
        ),
        SourceLeft(1, names, SourceAway.UNLISTED, "m" * 1_000),
    ]

    messages = sent(large)

    assert max(message.ByteSize() for message in messages) < GRPC_MESSAGE_BYTES_MAX // 2
    assert len(messages) > 20
    arrived = [plain(each) for each in read(messages)]
    assert arrived[:3] == [plain(each) for each in large[:3]]
    named = [name for feed_id, part, *_ in arrived[3:] for name in part]
    assert named == list(names)


def test_small_updates_share_a_message() -> None:
    count = 100
    messages = sent([SourceChanged(each, SourceChange(1)) for each in range(1, count)])

    assert len(messages) == 1


def test_a_message_has_so_many_requests() -> None:
    """FEED_REQUESTS_PER_MESSAGE_MAX."""
    most = [request_to_proto(FeedCredit(1))] * limits.FEED_REQUESTS_PER_MESSAGE_MAX
    assert len(list(requests_from_proto(wire.SourceRequests(requests=most)))) == len(most)

    with pytest.raises(InvalidRequest):
        requests_from_proto(wire.SourceRequests(requests=[*most, most[0]]))


def test_an_update_has_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """FEED_ITEM_BYTES_MAX."""
    part = wire.SourceUpdate(feed_id=1, more=True, left=wire.SourceLeft(message="m" * 90))
    size = part.ByteSize()
    last = wire.SourceUpdate(feed_id=1, left=wire.SourceLeft(reason="moved"))
    whole = wire.SourceUpdates(updates=[part, part, last])
    monkeypatch.setattr(
        "brokers.adapters.cluster.source_wire.FEED_ITEM_BYTES_MAX", 2 * size + last.ByteSize()
    )
    assert len(read([whole])) == 1
    monkeypatch.setattr(
        "brokers.adapters.cluster.source_wire.FEED_ITEM_BYTES_MAX", 2 * size + last.ByteSize() - 1
    )

    with pytest.raises(ConnectionLost):
        read([whole])


def test_a_request_of_a_later_release_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        list(requests_from_proto(wire.SourceRequests(requests=[wire.SourceRequest(feed_id=1)])))


def test_a_reason_of_a_later_release_is_one_to_look_again() -> None:
    update = wire.SourceUpdate(feed_id=1, left=wire.SourceLeft(reason="evaporated"))

    (left,) = read([wire.SourceUpdates(updates=[update])])

    assert isinstance(left, SourceLeft)
    assert left.reason is SourceAway.MOVED


POSITION = wire.MessagePosition(ledger_id=5, entry_id=2)
EXTENT = wire.SourceExtent(ledger_id=5, entries=3)


@pytest.mark.parametrize(
    "updates",
    [
        [wire.SourceUpdate(feed_id=1)],
        [wire.SourceUpdate(fed=wire.SourceFed(extents=[EXTENT, EXTENT]))],
        [wire.SourceUpdate(fed=wire.SourceFed(extents=[wire.SourceExtent(ledger_id=5)]))],
        [
            wire.SourceUpdate(
                fed=wire.SourceFed(extents=[wire.SourceExtent(ledger_id=-1, entries=1)])
            )
        ],
        [
            wire.SourceUpdate(
                changed=wire.SourceChanged(entries=[wire.SourceEntry(position=POSITION)])
            )
        ],
        [
            wire.SourceUpdate(
                changed=wire.SourceChanged(
                    extents=[EXTENT],
                    entries=[wire.SourceEntry(position=POSITION)] * 2,
                )
            )
        ],
        [
            wire.SourceUpdate(
                changed=wire.SourceChanged(
                    extents=[wire.SourceExtent(ledger_id=5, entries=9)],
                    entries=[wire.SourceEntry(position=POSITION)],
                )
            )
        ],
        [
            wire.SourceUpdate(feed_id=1, more=True, fed=wire.SourceFed()),
            wire.SourceUpdate(feed_id=2, fed=wire.SourceFed()),
        ],
        [
            wire.SourceUpdate(feed_id=1, more=True, fed=wire.SourceFed()),
            wire.SourceUpdate(feed_id=1, changed=wire.SourceChanged()),
        ],
    ],
)
def test_nonsense_ends_the_stream(updates: list[wire.SourceUpdate]) -> None:
    with pytest.raises(ConnectionLost):
        read([wire.SourceUpdates(updates=updates)])


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_updates_or_nonsense(messages: list[bytes]) -> None:
    reader = UpdateReader()
    for message in messages:
        try:
            list(reader.updates(wire.SourceUpdates.FromString(message)))
        except (DecodeError, ConnectionLost):
            return


@given(st.binary(max_size=60))
def test_any_bytes_are_requests_or_nonsense(message: bytes) -> None:
    try:
        list(requests_from_proto(wire.SourceRequests.FromString(message)))
    except (DecodeError, InvalidRequest):
        return
