"""Messages of the plug-in's socket: one JSON object a line, whose ``kind`` says what it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from brokers.domain.holding import Assignment, Release
from brokers.ports.plugin import (
    AbsentReported,
    DeletedReported,
    ForeignClosed,
    FromPlugin,
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
from nextgen.kernel.governance.broker_load import BrokerLoad, Rates, UnitLoad, refusal
from nextgen.kernel.limits.cluster import BROKER_CAPACITY_UNITS_MAX
from nextgen.kernel.limits.placement import BUSIEST_UNITS_MAX
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.pulsar.metadata_commands import Located

PROTOCOL = 3
"""Raised when a message changes its meaning. Both sides must have the same."""

_SHOWN_CHARACTERS_MAX = 200
"""Of what the other side sent, in a line of the log."""


def encode(kind: str, **fields: object) -> bytes:
    """Return one message, its end included."""
    return json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode() + b"\n"


def greeting_of(line: bytes) -> PluginGreeting:
    """Return the plug-in's first message.

    Raises:
        PluginLost: It is none, of another protocol, or the plug-in is for another broker.
    """
    fields = _object(line)
    if fields.get("kind") == "busy":
        raise PluginLost(
            f"the broker has a sidecar, {_text(fields, 'sidecar')} commands it",
            PluginFault.SECOND_SIDECAR,
        )
    if fields.get("kind") == "bye":
        raise _ended(fields)
    if fields.get("kind") != "hello":
        raise PluginLost("the plug-in did not greet first")
    if fields.get("protocol") != PROTOCOL:
        raise PluginLost(
            f"the plug-in speaks protocol {fields.get('protocol')!r}, this sidecar {PROTOCOL}: "
            "install the plug-in of this release",
            PluginFault.OTHER_PROTOCOL,
        )
    built_for, version = _text(fields, "built_for"), _text(fields, "version")
    if built_for != version:
        # It overrides what is no public interface: of another release it may decide anything.
        raise PluginLost(
            f"plug-in {_text(fields, 'plugin')} is for Apache Pulsar {built_for}, the broker is of "
            f"{version}: install the plug-in for that release",
            PluginFault.OTHER_RELEASE,
        )
    return PluginGreeting(
        broker=_text(fields, "broker"),
        urls=_text(fields, "urls"),
        version=version,
        web=_text(fields, "web"),
    )


def decode(line: bytes) -> FromPlugin:
    """Return one message behind the first.

    Raises:
        PluginLost: It is none.
    """
    fields = _object(line)
    kind = fields.get("kind")
    if kind == "bye":
        raise _ended(fields)
    read = _MESSAGES.get(kind) if isinstance(kind, str) else None
    if read is None:
        shown = repr(kind)[:_SHOWN_CHARACTERS_MAX]
        raise PluginLost(f"the plug-in sent a message of an unknown kind, {shown}")
    return read(fields)


def prepared(assignment: Assignment) -> bytes:
    return encode("prepare", topic=assignment.name)


def assigned(assignment: Assignment) -> bytes:
    return encode("assign", topic=assignment.name, epoch=assignment.epoch)


def released(release: Release) -> bytes:
    return encode("release", topic=release.name, epoch=release.epoch, urls=release.new_broker_url)


def located_at(number: int, located: Located) -> bytes:
    return encode(
        "located",
        number=number,
        topic=located.name,
        broker=located.broker_id,
        epoch=located.epoch,
        urls=located.broker_url,
    )


def _topics_reported(fields: Mapping[str, Any]) -> TopicsReported:
    return TopicsReported(
        is_first=fields.get("first") is True,
        is_last=fields.get("last") is True,
        used=_names(fields, "used"),
        unused=_names(fields, "unused"),
        closed=_names(fields, "closed"),
    )


def _foreign_closed(fields: Mapping[str, Any]) -> ForeignClosed:
    closed, kept, failed = (_count(fields, name) for name in ("closed", "kept", "failed"))
    return ForeignClosed(_count(fields, "number"), closed, kept, failed)


def _open_topics(fields: Mapping[str, Any]) -> OpenTopics:
    topics = fields.get("topics")
    if not isinstance(topics, list) or not all(isinstance(each, dict) for each in topics):
        raise PluginLost("the plug-in sent open topics that are no list")
    return OpenTopics(
        number=_count(fields, "number"),
        by_topic=_flag(fields, "by_topic"),
        topics=tuple(
            OpenTopic(_text(each, "topic"), _flag(each, "owned"), _text(each, "bundle_owner"))
            for each in topics
        ),
        is_last=_flag(fields, "last"),
    )


def _load(fields: Mapping[str, Any]) -> BrokerLoad:
    busiest = fields.get("busiest", [])
    if not isinstance(busiest, list):
        raise PluginLost("the plug-in sent a load whose topics are no list")
    load = BrokerLoad(
        open_topics=_count(fields, "open_topics"),
        connections=_count(fields, "connections"),
        producers=_count(fields, "producers"),
        consumers=_count(fields, "consumers"),
        cpu_fraction=_number(fields, "cpu_fraction"),
        cores=_count(fields, "cores"),
        memory_bytes=_count(fields, "memory_bytes"),
        memory_limit_bytes=_count(fields, "memory_limit_bytes"),
        rates=_rates(fields),
        busiest=tuple(map(_unit_load, busiest[:BUSIEST_UNITS_MAX])),
    )
    if why := refusal(load, BROKER_CAPACITY_UNITS_MAX):
        raise PluginLost(f"the plug-in sent a load that cannot be: {why}")
    return load


def _unit_load(fields: Any) -> UnitLoad:
    if not isinstance(fields, dict):
        raise PluginLost("the plug-in sent the load of a topic that is no object")
    name = _text(fields, "topic")
    try:
        unit = parse_topic(name).unit.text
    except InvalidName as error:
        raise PluginLost(f"the plug-in sent the load of a topic: {error}") from error
    return UnitLoad(
        name, unit, _rates(fields), _count(fields, "producers"), _count(fields, "consumers")
    )


def _rates(fields: Mapping[str, Any]) -> Rates:
    return Rates(
        messages_in=_number(fields, "messages_in"),
        messages_out=_number(fields, "messages_out"),
        bytes_in=_number(fields, "bytes_in"),
        bytes_out=_number(fields, "bytes_out"),
    )


def _ended(fields: Mapping[str, Any]) -> PluginLost:
    why = _text(fields, "why")[:_SHOWN_CHARACTERS_MAX]
    return PluginLost(f"the plug-in ended the connection: {why}", PluginFault.REFUSED)


def _object(line: bytes) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise PluginLost("the plug-in closed the connection", PluginFault.CLOSED)
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PluginLost(f"the plug-in sent no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise PluginLost("the plug-in sent a message that is no object")
    return fields


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise _unfit(name, value, "a text")
    return value


def _names(fields: Mapping[str, Any], name: str) -> list[str]:
    value = fields.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _unfit(name, value, "a list of texts")
    return value


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _unfit(name, value, "a whole number")
    return value


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise _unfit(name, value, "true or false")
    return value


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _unfit(name, value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise _unfit(name, value, "a number") from None


def _unfit(name: str, value: object, wanted: str) -> PluginLost:
    shown = repr(value)[:_SHOWN_CHARACTERS_MAX]
    return PluginLost(f"the plug-in sent {name} as {shown}, it is {wanted}")


_MESSAGES: Mapping[str, Callable[[Mapping[str, Any]], FromPlugin]] = {
    "alive": lambda _fields: PluginAlive(),
    "lookup": lambda fields: LookupRequest(_count(fields, "number"), _text(fields, "topic")),
    "ping": lambda fields: Ping(_count(fields, "number")),
    "synced": lambda fields: Synced(_count(fields, "number")),
    "load": lambda fields: LoadMeasured(_load(fields)),
    "topics": _topics_reported,
    "absent": lambda fields: AbsentReported(_names(fields, "topics")),
    "deleted": lambda fields: DeletedReported(_names(fields, "topics")),
    "open": _open_topics,
    "closed": _foreign_closed,
}
"""What reads the messages of each kind behind the first."""
