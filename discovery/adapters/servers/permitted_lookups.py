"""Lookups over gRPC for callers who may not look everything up: each name is asked for by itself.

A name that the caller may not look up is answered with FORBIDDEN, or, while its permissions cannot
be read, as other trouble that passes. The other names of the message are answered as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from discovery.service.lookups.lookup import LookupService
from discovery.wire import parse_lookup, refused_answer, trouble_answer
from nextgen.kernel.errors import Forbidden, InvalidRequest, MetadataError
from nextgen.kernel.governance.access import CLUSTER, Action, Resource
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.runtime.security.authorization.authorizer import Access
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest, LookupResponse


def may_look_up_all(access: Access, data: bytes) -> bool:
    """Return whether all names of a message are known to be allowed.

    A message that is none needs nothing: it is refused.
    """
    try:
        names = parse_lookup(data).topics
    except InvalidRequest:
        return True
    lookable = access.lookable
    return all(
        name.rpartition("/")[0].encode() in lookable or access.may_now(*_need(name))
        for name in names
    )


async def answer_permitted(
    service: LookupService,
    access: Access,
    data: bytes,
    timeout_ms: int = REQUEST_TIMEOUT_DEFAULT_MS,
) -> bytes:
    """Return the serialised ``LookupResponse`` to a message, some of whose names may be forbidden.

    Raises:
        InvalidRequest: ``data`` is not a lookup within the limits.
    """
    request = parse_lookup(data)
    refused: dict[int, bytes] = {}
    for place, name in enumerate(request.topics):
        try:
            await access.check(*_need(name))
        except Forbidden as error:
            refused[place] = refused_answer(name, error.reason, str(error))
        except MetadataError as error:
            refused[place] = trouble_answer(name, error)
    if not refused:
        return await service.answer(data, timeout_ms)
    answered: Sequence[bytes] = ()
    allowed = [place for place in range(len(request.topics)) if place not in refused]
    response = LookupResponse(
        request_id=request.request_id, shard_map_version=service.shard_map_version
    )
    if allowed:
        part = _part(request, allowed)
        response.ParseFromString(await service.answer(part.SerializeToString(), timeout_ms))
        answered = [each.SerializeToString() for each in response.answers]
        del response.answers[:]
    by_place = dict(zip(allowed, answered, strict=True))
    for place in range(len(request.topics)):
        if place in refused:
            response.MergeFromString(refused[place])
        else:
            response.answers.add().ParseFromString(by_place[place])
    return response.SerializeToString()


def _part(request: LookupRequest, places: Sequence[int]) -> LookupRequest:
    """Return the request for the names at ``places`` only."""
    part = LookupRequest()
    part.CopyFrom(request)
    del part.topics[:]
    part.topics.extend(request.topics[place] for place in places)
    if len(request.min_epochs) == len(request.topics):
        del part.min_epochs[:]
        part.min_epochs.extend(request.min_epochs[place] for place in places)
    return part


def _need(name: str) -> tuple[Action, Resource]:
    """Return what a lookup of ``name`` needs; for a name that is none, what nobody is refused."""
    try:
        return Action.LOOK_UP, Resource.topic(parse_topic(name).text)
    except InvalidName:
        return Action.CONNECT, CLUSTER
