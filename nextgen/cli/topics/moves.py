"""Requests moves and unloads of topics, and distinguishes done, refused and still running.

A shard finishes a begun move even if the caller stops waiting. So a move that is not done is one of
three: refused without a change, not begun, or still running.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from google.protobuf.message import Message

from nextgen.client.routing.repeatable_moves import are_repeatable
from nextgen.kernel.errors import Definite, Indefinite, MetadataError
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import MOVES_PER_REQUEST_MAX
from nextgen.runtime.lifecycle.exit_code import ExitCode
from protos.nextgen.v1.discovery_service_pb2 import MoveTopicsRequest, UnloadTopicsRequest
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicMove, UnassignOutcome

_REFUSALS = frozenset(code.value for code in RejectionCode)


class Caller(Protocol):
    """The way to discovery; ``DiscoveryClient`` is one."""

    async def call(self, method: str, request: Message, *, is_repeatable: bool = True) -> Any: ...


async def ask_moves(client: Caller, moves: Sequence[TopicMove]) -> list[LookupAnswer]:
    """Return the answer to each move, in order. A move that may have begun has ``under_way`` set.

    Raises:
        MetadataError: Nothing was moved.
    """
    answers: list[LookupAnswer] = []
    for start in range(0, len(moves), MOVES_PER_REQUEST_MAX):
        some = moves[start : start + MOVES_PER_REQUEST_MAX]
        request = MoveTopicsRequest(moves=some)
        try:
            response = await client.call("MoveTopics", request, is_repeatable=are_repeatable(some))
            answers += response.answers
        except MetadataError as error:
            if isinstance(error, Definite) and not answers:
                raise
            answers += [_unanswered(move, error) for move in some]
    return answers


async def ask_unloads(client: Caller, topics: Sequence[str]) -> list[UnassignOutcome]:
    """Return the outcome of each topic. A topic that may have been unloaded has ``under_way`` set.

    Raises:
        MetadataError: Nothing was unloaded.
    """
    request = UnloadTopicsRequest(topics=topics)
    try:
        response = await client.call("UnloadTopics", request)
    except Indefinite as error:
        return [UnassignOutcome(name=topic, message=str(error), under_way=True) for topic in topics]
    return list(response.outcomes)


def _unanswered(move: TopicMove, error: MetadataError) -> LookupAnswer:
    return LookupAnswer(
        topic=move.topic,
        rejection_code=error.reason,
        message=str(error),
        retryable=True,
        under_way=isinstance(error, Indefinite),
    )


def why_not_done(answer: LookupAnswer) -> str:
    """Return why a topic is not at the requested broker, and how to check on it later."""
    why = f"{answer.message} ({answer.rejection_code})"
    return f"{why}; {goes_on(answer.topic)}" if answer.under_way else why


def goes_on(topic: str) -> str:
    """Print that a topic's request is still running, and how to see its result."""
    return f"it goes on, or is done by now: see: nextgen topics why {topic}"


def exit_code_of(answers: Iterable[LookupAnswer]) -> ExitCode:
    """Return REFUSED if the rules refused one, else NO_ANSWER if one failed or is under way."""
    failed = [answer for answer in answers if answer.rejection_code]
    if any(not each.under_way and each.rejection_code in _REFUSALS for each in failed):
        return ExitCode.REFUSED
    return ExitCode.NO_ANSWER if failed else ExitCode.DONE
