"""Messages of the plug-in's socket."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.adapters.plugin.messages import (
    PROTOCOL,
    assigned,
    decode,
    encode,
    greeting_of,
    located_at,
    released,
)
from brokers.domain.holding import Assignment, Release, TopicMetadata
from brokers.ports.plugin import (
    LoadMeasured,
    LookupRequest,
    PluginAlive,
    PluginGreeting,
    PluginLost,
    Synced,
)
from nextgen.kernel.governance.broker_load import BrokerLoad, Rates, UnitLoad
from nextgen.pulsar.metadata_commands import Located

TOPIC = "persistent://acme/orders/eu-partition-3"
HELLO = {
    "kind": "hello",
    "protocol": PROTOCOL,
    "broker": "b1:8080",
    "urls": "pulsar://b1:6650",
    "version": "5.0.0-M1",
}
RATES = {"messages_in": 3.0, "messages_out": 6, "bytes_in": 300.0, "bytes_out": 600}
LOAD = {
    "kind": "load",
    "open_topics": 2,
    "connections": 3,
    "producers": 4,
    "consumers": 5,
    "cpu_fraction": 0.5,
    "cores": 2,
    "memory_bytes": 100,
    "memory_limit_bytes": 400,
    **RATES,
    "busiest": [{"topic": TOPIC, "producers": 1, "consumers": 2, **RATES}],
}


def line(fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def test_a_greeting_says_which_broker_it_is() -> None:
    assert greeting_of(line(HELLO)) == PluginGreeting("b1:8080", "pulsar://b1:6650", "5.0.0-M1")


@pytest.mark.parametrize("protocol", [PROTOCOL - 1, PROTOCOL + 1, None, "1"])
def test_a_plugin_of_another_release_is_turned_away(protocol: object) -> None:
    with pytest.raises(PluginLost, match="speaks protocol"):
        greeting_of(line(HELLO | {"protocol": protocol}))


def test_a_second_sidecar_learns_who_commands_the_broker() -> None:
    with pytest.raises(PluginLost, match="broker-7 commands it"):
        greeting_of(line({"kind": "busy", "sidecar": "broker-7"}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "alive"}, PluginAlive()),
        ({"kind": "lookup", "number": 7, "topic": TOPIC}, LookupRequest(7, TOPIC)),
        ({"kind": "synced", "number": 9}, Synced(9)),
        (
            LOAD,
            LoadMeasured(
                BrokerLoad(
                    open_topics=2,
                    connections=3,
                    producers=4,
                    consumers=5,
                    cpu_fraction=0.5,
                    cores=2,
                    memory_bytes=100,
                    memory_limit_bytes=400,
                    rates=Rates(3, 6, 300, 600),
                    busiest=(UnitLoad(TOPIC, "p3", Rates(3, 6, 300, 600), 1, 2),),
                )
            ),
        ),
    ],
)
def test_messages_of_the_plugin(fields: object, message: object) -> None:
    assert decode(line(fields)) == message


@pytest.mark.parametrize(
    "given_line",
    [
        b"",
        b'{"kind":"alive"}',
        b"\n",
        b"[]\n",
        b"{}\n",
        b"\xff\n",
        b"[" * 100_000 + b"\n",
        line({"kind": "hello"}),
        line({"kind": "lookup", "number": "7", "topic": TOPIC}),
        line({"kind": "lookup", "number": True, "topic": TOPIC}),
        line({"kind": "lookup", "number": 7}),
        line({"kind": "synced", "number": -1}),
        line(LOAD | {"cpu_fraction": -1}),
        line(LOAD | {"cpu_fraction": float("nan")}),
        line(LOAD | {"busiest": {}}),
        line(LOAD | {"busiest": [7]}),
        line(LOAD | {"busiest": [LOAD["busiest"][0] | {"topic": "persistent://acme"}]}),  # type: ignore[index]
    ],
)
def test_what_is_no_message_ends_the_connection(given_line: bytes) -> None:
    with pytest.raises(PluginLost):
        decode(given_line)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(given_line: bytes) -> None:
    for read in (decode, greeting_of):
        with pytest.raises(PluginLost):
            read(given_line)


def test_messages_to_the_plugin() -> None:
    topic = TopicMetadata("t-1", "persistent://acme/orders/eu", 4, {}, 1)
    told = [
        assigned(Assignment(topic, "p3", TOPIC, 5, 1)),
        released(Release("t-1", "p3", TOPIC, 5, "broker-2", 6, "", "pulsar://b2:6650")),
        located_at(7, Located(TOPIC, "broker-2", "s", "pulsar://b2:6650", "t-1", "p3", 6)),
        encode("alive"),
    ]

    assert [json.loads(each) for each in told] == [
        {"kind": "assign", "topic": TOPIC, "epoch": 5},
        {"kind": "release", "topic": TOPIC, "epoch": 5, "urls": "pulsar://b2:6650"},
        {
            "kind": "located",
            "number": 7,
            "topic": TOPIC,
            "broker": "broker-2",
            "epoch": 6,
            "urls": "pulsar://b2:6650",
        },
        {"kind": "alive"},
    ]
    assert all(each.count(b"\n") == 1 for each in told)
