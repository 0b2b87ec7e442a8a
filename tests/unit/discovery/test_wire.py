"""Encoded answers, limits of requests, derived ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.domain.page import PageToken
from discovery.wire import (
    answer_facts,
    check_command_id,
    decoded_answer,
    delta_of_event,
    encoded_answer,
    encoded_answer_facts,
    page_bounds,
    parse_lookup,
    refused_answer,
    trouble_answer,
)
from nextgen.client.wire.command_ids import derived_command_id
from nextgen.kernel.errors import InvalidRequest, Unavailable
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX
from protos.nextgen.v1.discovery_service_pb2 import (
    ListObjectsRequest,
    LookupRequest,
    LookupResponse,
)
from protos.nextgen.v1.events_pb2 import Event, TopicAssigned
from protos.nextgen.v1.inventory_pb2 import LookupAnswer

answers = st.builds(
    LookupAnswer,
    topic=st.text(max_size=400),
    broker_id=st.text(max_size=20),
    epoch=st.integers(0, 2**64 - 1),
    session_id=st.text(max_size=30),
    topic_id=st.text(max_size=30),
    position=st.integers(0, 2**64 - 1),
)


@given(st.lists(answers, max_size=5), st.integers(0, 2**64 - 1))
def test_joined_encoded_answers_are_a_response(given_answers, request_id):
    tail = LookupResponse(request_id=request_id).SerializeToString()

    response = LookupResponse.FromString(b"".join(map(encoded_answer, given_answers)) + tail)

    assert list(response.answers) == given_answers
    assert response.request_id == request_id


@given(answers)
def test_an_encoded_answer_can_be_read_again(answer):
    assert decoded_answer(encoded_answer(answer)) == answer
    assert encoded_answer_facts(encoded_answer(answer)) == answer_facts(answer)


def test_a_delta_of_the_assignment_in_an_answer_does_not_outdate_it():
    answer = LookupAnswer(
        topic="x", topic_id="id", epoch=3, broker_id="b", session_id="s", position=9
    )
    assigned = TopicAssigned(name="x", topic_id="id", epoch=3, broker_id="b", session_id="s")

    delta = delta_of_event(Event(position=11, topic_assigned=assigned))

    assert delta is not None
    assert not delta.outdates(answer_facts(answer))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_lookup_or_refused(data):
    try:
        request = parse_lookup(data)
    except InvalidRequest:
        return
    assert 1 <= len(request.topics) <= NAMES_PER_LOOKUP_MAX


@pytest.mark.parametrize(
    ("count", "is_refused"),
    [(0, True), (1, False), (NAMES_PER_LOOKUP_MAX, False), (NAMES_PER_LOOKUP_MAX + 1, True)],
)
def test_a_lookup_has_at_least_one_name_and_at_most_the_limit(count, is_refused):
    data = LookupRequest(topics=["x"] * count).SerializeToString()

    if is_refused:
        with pytest.raises(InvalidRequest, match=f"has {count} topics"):
            parse_lookup(data)
    else:
        assert len(parse_lookup(data).topics) == count


def test_trouble_is_retryable_and_a_refusal_is_not():
    trouble = decoded_answer(trouble_answer("x", Unavailable("no leader")))
    refusal = decoded_answer(refused_answer("x", "INVALID_NAME", "it is bad"))

    assert (trouble.rejection_code, trouble.message, trouble.retryable) == (
        "UNAVAILABLE",
        "no leader",
        True,
    )
    assert (refusal.rejection_code, refusal.retryable) == ("INVALID_NAME", False)


def test_derived_command_ids_never_change():
    """Another node, another release: a retry must find the first outcome."""
    assert derived_command_id(bytes(16), 1).hex() == "3df2b63750efed0dbc8a277c53ae8610"
    assert derived_command_id(bytes(16), 2).hex() == "94074bf5572d7c53ae8a7553083d7c00"


@pytest.mark.parametrize("length", [1, 15, 17])
def test_command_ids_of_another_length_are_refused(length):
    with pytest.raises(InvalidRequest, match=f"{length} bytes"):
        check_command_id(bytes(length))


@pytest.mark.parametrize("length", [0, 16])
def test_command_ids_may_be_left_out(length):
    check_command_id(bytes(length))


def test_a_page_has_the_size_asked_for_up_to_the_limit():
    assert page_bounds(ListObjectsRequest()) == (PageToken(), PAGE_ITEMS_DEFAULT)
    assert page_bounds(ListObjectsRequest(page_size=PAGE_ITEMS_MAX)) == (
        PageToken(),
        PAGE_ITEMS_MAX,
    )
    with pytest.raises(InvalidRequest, match="at most"):
        page_bounds(ListObjectsRequest(page_size=PAGE_ITEMS_MAX + 1))
