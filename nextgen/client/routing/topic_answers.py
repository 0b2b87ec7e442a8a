"""Converts a shard's lookup answer to the result or the error of a ``TopicDirectory``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nextgen.kernel.errors import Overloaded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import Domain, TopicName
from nextgen.pulsar.metadata_commands import Located
from protos.nextgen.v1.inventory_pb2 import LookupAnswer

Lookup = Callable[[TopicName], Awaitable[LookupAnswer]]
"""Returns where a unit is served, or a rejection. Raises ``MetadataError``."""

_CLASSIC = frozenset({Domain.PERSISTENT, Domain.NON_PERSISTENT})


def located(name: TopicName, answer: LookupAnswer) -> Located:
    """Return where ``name`` is served.

    Raises:
        MetadataError: The answer is a rejection.
    """
    answer = checked(answer)
    return Located(
        name=name.text,
        broker_id=answer.broker_id,
        session_id=answer.session_id,
        broker_url=answer.broker_url,
        topic_id=answer.topic_id,
        unit=name.unit.text,
        epoch=answer.epoch,
    )


def checked(answer: LookupAnswer) -> LookupAnswer:
    """Return ``answer`` if it names a broker.

    Raises:
        Unavailable, Overloaded: It is a rejection that may pass.
        Refused: It is a final rejection.
    """
    if not answer.rejection_code:
        return answer
    if answer.retry_after_ms:
        raise Overloaded(f"{answer.rejection_code}: {answer.message}", answer.retry_after_ms)
    if answer.retryable:
        raise Unavailable(f"{answer.rejection_code}: {answer.message}")
    raise Refused(answer.rejection_code, answer.message)


def may_be_created(name: TopicName, answer: LookupAnswer) -> bool:
    """Return whether ``answer`` is NOT_FOUND of a topic that a client's first use may create."""
    return (
        answer.rejection_code == RejectionCode.NOT_FOUND
        and name.partition is None
        and name.domain in _CLASSIC
    )


def check_has_broker(name: TopicName) -> None:
    """Check that a broker may serve ``name`` itself: a scalable topic is served by segments.

    Raises:
        Refused: ``SCALABLE``.
    """
    if name.domain is Domain.TOPIC:
        raise Refused(
            RejectionCode.SCALABLE, f"topic {name.text} is scalable: its segments are served"
        )


def check_classic(name: TopicName) -> None:
    """Check that the name's domain is one that Pulsar's classic clients know.

    Raises:
        Refused: ``NOT_FOUND``.
    """
    if name.domain not in _CLASSIC:
        raise not_found(name)


def not_found(name: TopicName) -> Refused:
    """Return the error for a topic that does not exist."""
    return Refused(RejectionCode.NOT_FOUND, f"topic {name.text} does not exist")
