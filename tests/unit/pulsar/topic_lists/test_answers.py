"""GET_TOPICS_OF_NAMESPACE: patterns, hashes, properties, and what older clients get."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nextgen.kernel.errors import InvalidRequest, Unavailable
from nextgen.kernel.limits.cluster import PROPERTIES_MAX
from nextgen.kernel.limits.listing import SUBSCRIPTION_PATTERN_CHARACTERS_MAX
from nextgen.kernel.routing.names import parse_namespace
from nextgen.kernel.routing.property_filter import property_filter
from nextgen.pulsar.topic_lists.answers import TopicListAnswers, needed_of_listing
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.pulsar.topic_lists.listed import ListedTopics
from nextgen.pulsar.topic_lists.ports import ListQuestion
from nextgen.pulsar.topic_lists.settings import TopicListSettings
from protos.pulsar import PulsarApi_pb2 as pulsar

ORDERS = parse_namespace("acme/orders")
NAMES = [f"persistent://acme/orders/{name}" for name in ("a1", "a2", "b1")]


class Listing:
    """Lists ``NAMES``, as shards would for a question."""

    def __init__(self) -> None:
        self.questions: list[ListQuestion] = []

    async def topics_of_namespace(self, question: ListQuestion) -> list[str]:
        self.questions.append(question)
        return [n for n in NAMES if question.pattern is None or question.pattern.matches(n)]


def request(
    *, properties: Mapping[str, str] | None = None, **fields: str
) -> pulsar.CommandGetTopicsOfNamespace:
    asked = pulsar.CommandGetTopicsOfNamespace(request_id=9, namespace=ORDERS.text, **fields)
    for key, value in (properties or {}).items():
        asked.properties.add(key=key, value=value)
    return asked


async def answer_to(
    settings: TopicListSettings | None = None, **fields: str
) -> pulsar.CommandGetTopicsOfNamespaceResponse:
    answers = TopicListAnswers(ListedTopics(Listing()), settings)
    return await answers.answer(ORDERS, request(**fields))


async def test_a_client_without_the_fields_gets_the_full_list() -> None:
    answer = await answer_to()

    assert list(answer.topics) == NAMES
    assert (answer.filtered, answer.changed, answer.request_id) == (False, True, 9)
    assert answer.topics_hash == topics_hash(NAMES)


async def test_a_pattern_is_applied_here() -> None:
    answer = await answer_to(topics_pattern="persistent://acme/orders/a.*")

    assert list(answer.topics) == NAMES[:2]
    assert (answer.filtered, answer.changed) == (True, True)
    assert answer.topics_hash == topics_hash(NAMES[:2])


async def test_an_unchanged_hash_is_answered_without_names() -> None:
    known = topics_hash(NAMES[:2])

    answer = await answer_to(topics_pattern="acme/orders/a.*", topics_hash=known)

    assert list(answer.topics) == []
    assert (answer.filtered, answer.changed, answer.topics_hash) == (True, False, known)


async def test_an_empty_list_is_no_unchanged_one() -> None:
    answer = await answer_to(topics_pattern="acme/orders/none")

    assert list(answer.topics) == []
    assert (answer.filtered, answer.changed, answer.topics_hash) == (True, True, "00000000")


@pytest.mark.parametrize(
    ("length", "filtered"), [(50, True), (51, False)], ids=["longest", "one more"]
)
async def test_a_pattern_is_as_long_as_its_raw_text(length: int, filtered: bool) -> None:
    pattern = "persistent://acme/orders/a.*"
    pattern += "x?" * ((length - len(pattern)) // 2) + "x*"[: (length - len(pattern)) % 2]
    if len(pattern) < length:
        pattern += "$"

    answer = await answer_to(topics_pattern=pattern)

    assert len(pattern) == length
    assert answer.filtered is filtered
    assert len(answer.topics) == (2 if filtered else 3)


async def test_a_pattern_may_be_as_long_as_configured() -> None:
    settings = TopicListSettings(pattern_characters_max=14)

    assert (await answer_to(settings, topics_pattern="acme/orders/..")).filtered
    assert not (await answer_to(settings, topics_pattern="acme/orders/..$")).filtered


async def test_what_cannot_be_evaluated_in_linear_time_is_left_to_the_client() -> None:
    answer = await answer_to(topics_pattern="acme/orders/(?!a).*")

    assert (len(answer.topics), answer.filtered, answer.changed) == (3, False, True)


@pytest.mark.parametrize("pattern", ["acme/orders/[a", "topic://acme/orders/a"])
async def test_an_error_in_a_pattern_is_a_retryable_code_as_in_pulsar(pattern: str) -> None:
    with pytest.raises(Unavailable):
        await answer_to(topics_pattern=pattern)


async def test_evaluation_can_be_switched_off() -> None:
    off = TopicListSettings(evaluates_patterns=False)

    answer = await answer_to(off, topics_pattern="acme/orders/a.*")
    known = await answer_to(off, topics_pattern="x", topics_hash=topics_hash(NAMES))

    assert (len(answer.topics), answer.filtered) == (3, False)
    assert (len(known.topics), known.changed) == (0, False)


async def test_properties_and_mode_are_asked_of_the_shards() -> None:
    listing = Listing()
    answers = TopicListAnswers(ListedTopics(listing))
    asked = request(properties={"zone": "a"})
    asked.mode = pulsar.CommandGetTopicsOfNamespace.ALL

    await answers.answer(ORDERS, asked)

    (question,) = listing.questions
    assert (question.properties, question.domain) == (property_filter([("zone", "a")]), "")


async def test_a_filter_has_at_most_properties_max() -> None:
    answers = TopicListAnswers(ListedTopics(Listing()))
    most = {f"key{number}": "" for number in range(PROPERTIES_MAX)}

    await answers.answer(ORDERS, request(properties=most))
    with pytest.raises(InvalidRequest, match="properties"):
        await answers.answer(ORDERS, request(properties={**most, "one more": ""}))


async def test_a_waiting_command_keeps_no_more_than_can_be_meant() -> None:
    most = SUBSCRIPTION_PATTERN_CHARACTERS_MAX + 1
    asked = request(
        topics_pattern="x" * 10 * most,
        topics_hash="not a hash",
        properties={f"key{number}": "" for number in range(PROPERTIES_MAX * 2)},
    )
    command = pulsar.BaseCommand(
        type=pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked
    )

    needed = needed_of_listing(command).getTopicsOfNamespace

    assert needed.topics_pattern == "x" * most
    assert needed.topics_hash == ""
    assert len(needed.properties) == PROPERTIES_MAX + 1
    small = request(topics_pattern="a.*", topics_hash="00000000", properties={"a": "b"})
    small.mode = pulsar.CommandGetTopicsOfNamespace.NON_PERSISTENT
    command.getTopicsOfNamespace.CopyFrom(small)
    assert needed_of_listing(command) == command
