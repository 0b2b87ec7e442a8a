"""Refusals of commands of scalable topics, each in its own kind of answer."""

from __future__ import annotations

from collections.abc import Callable

from protos.pulsar import PulsarApi_pb2 as pulsar

_MESSAGE = "scalable topics are not supported"


def _lookup(command: pulsar.BaseCommand) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.SCALABLE_TOPIC_UPDATE,
        scalableTopicUpdate=pulsar.CommandScalableTopicUpdate(
            session_id=command.scalableTopicLookup.session_id,
            error=pulsar.NotAllowedError,
            message=_MESSAGE,
        ),
    )


def _subscribe(command: pulsar.BaseCommand) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
        scalableTopicSubscribeResponse=pulsar.CommandScalableTopicSubscribeResponse(
            request_id=command.scalableTopicSubscribe.request_id,
            error=pulsar.NotAllowedError,
            message=_MESSAGE,
        ),
    )


def _watch_topics(command: pulsar.BaseCommand) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE,
        watchScalableTopicsUpdate=pulsar.CommandWatchScalableTopicsUpdate(
            watch_id=command.watchScalableTopics.watch_id,
            error=pulsar.NotAllowedError,
            message=_MESSAGE,
        ),
    )


def _watch_coordinators(command: pulsar.BaseCommand) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS_UPDATE,
        watchTcAssignmentsUpdate=pulsar.CommandWatchTcAssignmentsUpdate(
            watch_id=command.watchTcAssignments.watch_id,
            error=pulsar.NotAllowedError,
            message="transactions are not supported",
        ),
    )


def _unsubscribe(command: pulsar.BaseCommand) -> pulsar.BaseCommand:
    return pulsar.BaseCommand(
        type=pulsar.BaseCommand.ERROR,
        error=pulsar.CommandError(
            request_id=command.scalableTopicUnsubscribe.request_id,
            error=pulsar.NotAllowedError,
            message=_MESSAGE,
        ),
    )


def _silence(command: pulsar.BaseCommand) -> None:
    return None


_ANSWERS: dict[int, Callable[[pulsar.BaseCommand], pulsar.BaseCommand | None]] = {
    pulsar.BaseCommand.SCALABLE_TOPIC_LOOKUP: _lookup,
    pulsar.BaseCommand.SCALABLE_TOPIC_CLOSE: _silence,
    pulsar.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: _subscribe,
    pulsar.BaseCommand.WATCH_SCALABLE_TOPICS: _watch_topics,
    pulsar.BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: _silence,
    pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS: _watch_coordinators,
    pulsar.BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE: _silence,
    pulsar.BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE: _unsubscribe,
}

SCALABLE_TOPICS = frozenset(_ANSWERS)


def no_scalable_topics(command: pulsar.BaseCommand) -> pulsar.BaseCommand | None:
    """Return the answer to one of ``SCALABLE_TOPICS``; None where the protocol has none."""
    return _ANSWERS[command.type](command)
