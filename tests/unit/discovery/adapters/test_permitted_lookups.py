"""Lookups over gRPC of callers who may not look everything up."""

from __future__ import annotations

from typing import Any

import pytest

from discovery.adapters.servers.permitted_lookups import answer_permitted, may_look_up_all
from discovery.wire import encoded_answer, parse_lookup
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.access import CLUSTER, Action, Principal, Resource
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest, LookupResponse
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.support.authorization import AllowList, AllowListAccess

PAID = "persistent://acme/orders/paid"
LATE = "persistent://acme/orders/late"
SECRET = "persistent://other/secret/paid"


class Service:
    """Answers every name by a broker of its name, and remembers the messages."""

    shard_map_version = 7

    def __init__(self) -> None:
        self.asked: list[LookupRequest] = []

    async def answer(self, data: bytes, _timeout_ms: int) -> bytes:
        request = parse_lookup(data)
        self.asked.append(request)
        answers = b"".join(
            encoded_answer(LookupAnswer(topic=name, broker_id="b")) for name in request.topics
        )
        rest = LookupResponse(request_id=request.request_id, shard_map_version=7)
        return answers + rest.SerializeToString()


@pytest.fixture
async def allow() -> AllowList:
    allow = AllowList()
    allow.allow("ada", Action.CONNECT, CLUSTER)
    allow.allow("ada", Action.LOOK_UP, Resource.topic(PAID), Resource.topic(LATE))
    return allow


def access_of(allow: AllowList) -> AllowListAccess:
    return allow.session(Principal("ada"), lambda _: None)


async def answered(allow: AllowList, request: LookupRequest) -> tuple[LookupResponse, Service]:
    service: Any = Service()
    data = await answer_permitted(service, access_of(allow), request.SerializeToString())
    return LookupResponse.FromString(data), service


async def test_names_that_may_be_looked_up_are_answered_as_ever(allow: AllowList) -> None:
    request = LookupRequest(topics=[PAID, LATE], request_id=3)
    response, service = await answered(allow, request)

    assert [each.broker_id for each in response.answers] == ["b", "b"]
    assert service.asked == [request]


async def test_each_other_name_is_refused_in_its_place(allow: AllowList) -> None:
    request = LookupRequest(topics=[SECRET, PAID, SECRET, LATE], request_id=3, fresh=True)
    request.min_epochs.extend([1, 2, 3, 4])
    response, service = await answered(allow, request)

    codes = [each.rejection_code for each in response.answers]
    assert codes == ["FORBIDDEN", "", "FORBIDDEN", ""]
    assert [each.topic for each in response.answers] == [SECRET, PAID, SECRET, LATE]
    assert not any(each.retryable for each in response.answers)
    assert (response.request_id, response.shard_map_version) == (3, 7)
    (part,) = service.asked
    assert (list(part.topics), list(part.min_epochs), part.fresh) == ([PAID, LATE], [2, 4], True)


async def test_where_nothing_may_be_looked_up_no_shard_is_asked(allow: AllowList) -> None:
    response, service = await answered(allow, LookupRequest(topics=[SECRET], request_id=9))

    assert [each.rejection_code for each in response.answers] == ["FORBIDDEN"]
    assert (response.request_id, response.shard_map_version) == (9, 7)
    assert service.asked == []


async def test_while_permissions_cannot_be_read_a_name_is_to_be_asked_again(
    allow: AllowList,
) -> None:
    allow.unavailable.add(Resource.topic(LATE))
    response, _ = await answered(allow, LookupRequest(topics=[PAID, LATE]))

    assert [each.retryable for each in response.answers] == [False, True]


async def test_a_name_that_is_none_is_left_to_the_service(allow: AllowList) -> None:
    _, service = await answered(allow, LookupRequest(topics=["a//b", PAID]))

    assert list(service.asked[0].topics) == ["a//b", PAID]


async def test_a_message_that_is_no_lookup_is_refused(allow: AllowList) -> None:
    service: Any = Service()
    with pytest.raises(InvalidRequest):
        await answer_permitted(service, access_of(allow), LookupRequest().SerializeToString())


async def test_a_message_is_answered_at_once_if_all_its_names_are_known(allow: AllowList) -> None:
    access = access_of(allow)
    access.refresh()

    def may(*names: str) -> bool:
        return may_look_up_all(access, LookupRequest(topics=names).SerializeToString())

    assert may(PAID, LATE)
    assert not may(PAID, SECRET)
    assert may_look_up_all(access, b"\xff")  # Refused as what it is.
    allow.allow("ada", Action.LOOK_UP, Resource.namespace("other/secret"))
    assert may(PAID, SECRET)
    allow.revoke("ada", Action.LOOK_UP, Resource.namespace("other/secret"))
    assert not may(PAID, SECRET)
