import pytest

from nextgen.client.transport.request_fields import RequestFields, TooManyFields
from nextgen.kernel.limits.inbound import GRPC_COUNTED_BYTES_MIN, GRPC_REQUEST_FIELDS_MAX
from protos.nextgen.v1.discovery_service_pb2 import CreateTopicsRequest, LookupRequest

NAME = b"\x12\x02ab"
EMPTY_NAME = b"\x12\x00"


def test_grpc_request_fields_max_is_accepted_and_one_more_refused() -> None:
    fields = RequestFields(LookupRequest)
    assert len(LookupRequest.FromString(NAME).topics) == 1

    fields.check(NAME * GRPC_REQUEST_FIELDS_MAX)

    with pytest.raises(TooManyFields, match="a LookupRequest has more than 100000 fields"):
        fields.check(NAME * (GRPC_REQUEST_FIELDS_MAX + 1))


def test_a_request_that_is_not_counted_has_no_room_for_too_many_fields() -> None:
    longest = EMPTY_NAME * (GRPC_COUNTED_BYTES_MIN // len(EMPTY_NAME))

    RequestFields(LookupRequest).check(longest)

    assert len(longest) == GRPC_COUNTED_BYTES_MIN
    assert len(LookupRequest.FromString(longest).topics) == GRPC_REQUEST_FIELDS_MAX


def test_fields_of_messages_inside_count() -> None:
    topic = CreateTopicsRequest(topics=[{"name": "n", "properties": {"a": "b"}}])
    data = topic.SerializeToString()
    fields_of_a_topic = 5  # The topic, its name, the entry, its key and its value.

    RequestFields(CreateTopicsRequest).check(data * (GRPC_REQUEST_FIELDS_MAX // fields_of_a_topic))

    with pytest.raises(TooManyFields):
        RequestFields(CreateTopicsRequest).check(
            data * (GRPC_REQUEST_FIELDS_MAX // fields_of_a_topic + 1)
        )


def test_long_text_is_one_field() -> None:
    request = LookupRequest(topics=["x" * 3_000_000] * 2).SerializeToString()

    RequestFields(LookupRequest).check(request)


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(TooManyFields, match="not a LookupRequest: "):
        RequestFields(LookupRequest).check(NAME * GRPC_REQUEST_FIELDS_MAX + b"\x12\x7f")
