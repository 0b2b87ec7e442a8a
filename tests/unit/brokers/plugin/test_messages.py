"""Messages of the plug-in's socket."""

from __future__ import annotations

import json
import re

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
    prepared,
    released,
)
from brokers.domain.holding import Assignment, Release, TopicMetadata
from brokers.ports.plugin import (
    AbsentReported,
    DeletedReported,
    ForeignClosed,
    LoadMeasured,
    LookupRequest,
    OpenTopic,
    OpenTopics,
    Ping,
    PluginAlive,
    PluginFault,
    PluginGreeting,
    PluginLost,
    Synced,
    TopicsReported,
)
from nextgen.kernel.governance.broker_load import BrokerLoad, Rates, UnitLoad
from nextgen.pulsar.metadata_commands import Located

TOPIC = "persistent://acme/orders/eu-partition-3"
HELLO = {
    "kind": "hello",
    "protocol": PROTOCOL,
    "broker": "b1:8080",
    "urls": "pulsar://b1:6650",
    "web": "http://b1:8080",
    "plugin": "0.1.0",
    "built_for": "5.0.0-M1",
    "version": "5.0.0-M1",
}
OPEN = {
    "kind": "open",
    "number": 3,
    "by_topic": True,
    "last": True,
    "topics": [{"topic": TOPIC, "owned": False, "bundle_owner": "b2:8080"}],
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
TOPICS = {"kind": "topics", "first": False, "last": True, "used": [], "unused": [], "closed": []}


def line(fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def test_a_greeting_says_which_broker_it_is() -> None:
    assert greeting_of(line(HELLO)) == PluginGreeting(
        "b1:8080", "pulsar://b1:6650", "5.0.0-M1", "http://b1:8080"
    )


@pytest.mark.parametrize(
    ("greeting", "fault", "why"),
    [
        (
            HELLO | {"protocol": PROTOCOL - 1},
            PluginFault.OTHER_PROTOCOL,
            f"speaks protocol {PROTOCOL - 1},",
        ),
        (
            HELLO | {"protocol": PROTOCOL + 1},
            PluginFault.OTHER_PROTOCOL,
            f"speaks protocol {PROTOCOL + 1},",
        ),
        (HELLO | {"protocol": None}, PluginFault.OTHER_PROTOCOL, "speaks protocol None"),
        (HELLO | {"protocol": "2"}, PluginFault.OTHER_PROTOCOL, "speaks protocol '2'"),
        (
            HELLO | {"version": "5.0.0"},
            PluginFault.OTHER_RELEASE,
            "plug-in 0.1.0 is for Apache Pulsar 5.0.0-M1, the broker is of 5.0.0:",
        ),
        (
            {"kind": "busy", "sidecar": "broker-7"},
            PluginFault.SECOND_SIDECAR,
            "broker-7 commands it",
        ),
        ({"kind": "bye", "why": "the broker stops"}, PluginFault.REFUSED, "the broker stops"),
        ({"kind": "alive"}, PluginFault.MALFORMED, "did not greet first"),
        (HELLO | {"web": 7}, PluginFault.MALFORMED, "web as 7"),
    ],
)
def test_a_greeting_that_is_not_taken_says_what_is_wrong(
    greeting: object, fault: PluginFault, why: str
) -> None:
    with pytest.raises(PluginLost, match=re.escape(why)) as raised:
        greeting_of(line(greeting))
    assert raised.value.fault is fault


def test_fields_that_are_not_known_are_ignored() -> None:
    assert greeting_of(line(HELLO | {"later": {}})) == greeting_of(line(HELLO))
    assert decode(line({"kind": "synced", "number": 9, "later": [1]})) == Synced(9)


@pytest.mark.parametrize(
    ("given_line", "fault"),
    [
        (b"", PluginFault.CLOSED),
        (line({"kind": "alive"})[:-1], PluginFault.CLOSED),
        (line({"kind": "bye", "why": "it does not read"}), PluginFault.REFUSED),
        (line({"kind": "later"}), PluginFault.MALFORMED),
        (line({"kind": "x" * 100_000}), PluginFault.MALFORMED),
    ],
)
def test_what_ends_a_connection_is_of_a_kind(given_line: bytes, fault: PluginFault) -> None:
    with pytest.raises(PluginLost) as raised:
        decode(given_line)
    assert raised.value.fault is fault
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "alive"}, PluginAlive()),
        ({"kind": "lookup", "number": 7, "topic": TOPIC}, LookupRequest(7, TOPIC)),
        ({"kind": "ping", "number": 9}, Ping(9)),
        ({"kind": "synced", "number": 9}, Synced(9)),
        (OPEN, OpenTopics(3, True, (OpenTopic(TOPIC, False, "b2:8080"),), is_last=True)),
        (OPEN | {"topics": [], "last": False}, OpenTopics(3, True, (), is_last=False)),
        (
            {"kind": "closed", "number": 4, "closed": 1, "kept": 2, "failed": 3},
            ForeignClosed(4, 1, 2, 3),
        ),
        (
            TOPICS | {"used": [TOPIC], "closed": ["persistent://a/b/c"]},
            TopicsReported(False, True, [TOPIC], [], ["persistent://a/b/c"]),
        ),
        ({"kind": "absent", "topics": [TOPIC]}, AbsentReported([TOPIC])),
        ({"kind": "deleted", "topics": [TOPIC]}, DeletedReported([TOPIC])),
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
        line({"kind": "topics", "used": [], "unused": []}),
        line(TOPICS | {"used": [7]}),
        line({"kind": "absent", "topics": TOPIC}),
        line({"kind": "bye"}),
        line(LOAD | {"cpu_fraction": -1}),
        line(LOAD | {"cpu_fraction": 10**400}),
        line(LOAD | {"cpu_fraction": float("nan")}),
        line(OPEN | {"topics": {}}),
        line(OPEN | {"topics": [TOPIC]}),
        line(OPEN | {"topics": [{"topic": TOPIC, "owned": 1, "bundle_owner": ""}]}),
        line(OPEN | {"last": None}),
        line({"kind": "closed", "number": 4, "closed": 1, "kept": 2}),
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
        prepared(Assignment(topic, "p3", TOPIC, 5, 1)),
        assigned(Assignment(topic, "p3", TOPIC, 5, 1)),
        released(Release("t-1", "p3", TOPIC, 5, "broker-2", 6, "", "pulsar://b2:6650")),
        located_at(7, Located(TOPIC, "broker-2", "s", "pulsar://b2:6650", "t-1", "p3", 6)),
        encode("alive"),
    ]

    assert [json.loads(each) for each in told] == [
        {"kind": "prepare", "topic": TOPIC},
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
