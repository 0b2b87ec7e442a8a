"""Creates that are one shard's part of a client's command, and their outcomes topic by topic.

A client's batch is split by the shards of its names. If slots have moved when it is repeated, it is
split otherwise: a part then has topics that this shard decided, topics that another shard decided
before their slots came from there, and topics that nobody has decided yet. So the recorded outcome
of a part names its topics by hash, and only what is not known is carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from protos.nextgen.v1.shard_service_pb2 import CommandResult, TopicOutcome
from shards.inventory.command_answer import Answer, repeated
from shards.projections.reading import RecordedOutcome
from shards.state.command_outcomes import PendingOutcome
from shards.wire.command import OnNewTopics

OutcomesByHash = Mapping[int, TopicOutcome]


def by_hash(results: Iterable[CommandResult]) -> dict[int, TopicOutcome]:
    """Return the outcomes of topics that recorded parts name; of one topic, that of the first."""
    found: dict[int, TopicOutcome] = {}
    for result in results:
        for name_hash, outcome in zip(result.topic_hashes, result.topics, strict=True):
            found.setdefault(name_hash, outcome)
    return found


def is_of_this_split(command: OnNewTopics, result: CommandResult) -> bool:
    """Return whether ``result`` answers ``command`` as it is: it has the same topics in the same
    order, or was refused as a whole, or an earlier release recorded it without hashes."""
    recorded = tuple(result.topic_hashes[: len(command.hashes)])
    return not result.topic_hashes or recorded == command.hashes


def without_known(command: OnNewTopics, known: OutcomesByHash) -> OnNewTopics:
    """Return ``command`` with the outcomes of the topics that are ``known``."""
    asked = set(command.hashes)
    return replace(
        command,
        topics=tuple(
            [
                known.get(name_hash, topic)
                for name_hash, topic in zip(command.hashes, command.topics, strict=True)
            ]
        ),
        earlier=tuple([each for each in known.items() if each[0] not in asked]),
    )


def known_result(command: OnNewTopics, known: OutcomesByHash) -> CommandResult | None:
    """Return the result of a part of which every topic is known, None of another one."""
    if not all(name_hash in known for name_hash in command.hashes):
        return None
    return CommandResult(topics=[known[name_hash] for name_hash in command.hashes])


def begin_part(
    command: OnNewTopics,
    first: PendingOutcome | RecordedOutcome | None,
    former: Iterable[CommandResult],
) -> Answer | OnNewTopics:
    """Return the answer of a part that is known, or what of it has to be carried out.

    ``first`` is the outcome that this shard has of the part, ``former`` what others have of it.
    """
    recorded = [*former]
    answer = Answer(CommandResult())
    if first is not None:
        answer = repeated(first)
        if is_of_this_split(command, answer.result):
            strip_part(answer.result, len(command.topics))
            return answer
        recorded.insert(0, answer.result)
    if not recorded:
        return command
    known = by_hash(recorded)
    result = known_result(command, known)
    return without_known(command, known) if result is None else replace(answer, result=result)


def result_of_part(command: OnNewTopics, outcomes: Sequence[TopicOutcome]) -> CommandResult:
    """Return the result to record: of a part with hashes, and with what was decided earlier."""
    if not command.batch_id:
        return CommandResult(topics=outcomes)
    return CommandResult(
        topics=[*outcomes, *(outcome for _, outcome in command.earlier)],
        topic_hashes=[*command.hashes, *(name_hash for name_hash, _ in command.earlier)],
    )


def strip_part(result: CommandResult, topics: int) -> None:
    """Leave in a recorded result what its caller asked for: its first ``topics``."""
    if result.topic_hashes:
        del result.topics[topics:]
        del result.topic_hashes[:]
