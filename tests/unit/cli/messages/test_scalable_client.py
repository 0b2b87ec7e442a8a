"""The command line's client of scalable topics, against a server in the same process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.cli.messages.commands import _as_dict
from nextgen.cli.messages.scalable_client import scalable_client
from nextgen.kernel.errors import DeadlineExceeded, Refused, Unavailable
from nextgen.kernel.limits.pulsar import PULSAR_MESSAGE_BYTES_MAX
from tests.unit.client.st.fake_server import FakeServer

TOPIC = "topic://public/default/t"


def send_and_receive(url: str) -> list[Any]:
    with scalable_client(url, TOPIC) as client:
        sent = list(client.send([b"a", b"b", b"c"], key="k", in_flight_max=2))
        assert [each.number for each in sent] == [0, 1, 2]
        queue = client.consume("s", kind="Shared", earliest=True, count=3, quiet_s=5)
        assert [each.data() for each in queue] == [b"a", b"b", b"c"]
        stream = client.consume("t", kind="Exclusive", earliest=True, count=2, quiet_s=5)
        assert [each.data() for each in stream] == [b"a", b"b"]
        with pytest.raises(DeadlineExceeded, match="1 of 2"):
            list(client.consume("t", kind="Exclusive", earliest=True, count=2, quiet_s=0.5))
        return [_as_dict(each) for each in client.read(earliest=True, follow=False, count=0)]


async def test_messages_are_sent_consumed_and_read() -> None:
    async with FakeServer() as server:
        server.create(TOPIC)
        shown = await asyncio.to_thread(send_and_receive, server.url)

    assert [each["data"] for each in shown] == ["a", "b", "c"]
    assert {each["key"] for each in shown} == {"k"}
    assert shown[0]["topic"].startswith("segment://public/default/t/")


async def test_what_is_larger_than_an_entry_is_sent_and_shown_whole() -> None:
    large = b"x" * (PULSAR_MESSAGE_BYTES_MAX + 1)

    def send_and_read(url: str) -> list[bytes]:
        with scalable_client(url, TOPIC) as client:
            list(client.send([large], key=None))
            return [each.data() for each in client.read(earliest=True, follow=False, count=0)]

    async with FakeServer() as server:
        server.create(TOPIC)
        assert await asyncio.to_thread(send_and_read, server.url) == [large]


def read_absent(url: str) -> None:
    with scalable_client(url, TOPIC) as client:
        list(client.read(earliest=True, follow=False, count=0))


async def test_reading_creates_no_topic() -> None:
    async with FakeServer() as server:
        with pytest.raises(Refused, match="no topic"):
            await asyncio.to_thread(read_absent, server.url)
        assert server.topics == {}


def test_no_server_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        read_absent("pulsar://127.0.0.1:1")
