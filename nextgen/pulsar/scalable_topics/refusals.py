"""Refusals of commands of scalable topics, and of transactions' coordinators."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nextgen.pulsar.admission.refusals import refusal_of
from protos.pulsar import PulsarApi_pb2 as pulsar

_MESSAGE = "scalable topics are not supported"

_MESSAGES: Mapping[int, str] = MappingProxyType(
    {
        pulsar.BaseCommand.SCALABLE_TOPIC_LOOKUP: _MESSAGE,
        pulsar.BaseCommand.SCALABLE_TOPIC_CLOSE: _MESSAGE,
        pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: _MESSAGE,
        pulsar.BaseCommand.WATCH_SCALABLE_TOPICS: _MESSAGE,
        pulsar.BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: _MESSAGE,
        pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS: "transactions are not supported",
        pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE: _MESSAGE,
        pulsar.BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: _MESSAGE,
    }
)

SCALABLE_TOPICS = frozenset(_MESSAGES)


def no_scalable_topics(command: pulsar.BaseCommand) -> pulsar.BaseCommand | None:
    """Return the answer to one of ``SCALABLE_TOPICS``; None where the protocol has none."""
    return refusal_of(command, pulsar.NotAllowedError, _MESSAGES[command.type])
