"""POST {namespace}/rename and {tenant}/rename: every case with its code, and who may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from discovery.adapters.administration.parent_renames import ParentRenameRoutes
from discovery.adapters.rest.request import RestRequest
from nextgen.kernel.errors import MetadataError, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.limits.write import RENAME_GRACE_MS_MAX
from protos.nextgen.v1 import discovery_service_pb2 as pb
from tests.support.discovery.rest_server import serving

OF_NAMESPACE = "/admin/v2/namespaces/acme/old/rename"
OF_TENANT = "/admin/v2/tenants/acme/rename"
WEEK_S = RENAME_GRACE_MS_MAX // 1_000
DONE = pb.RenameParentResponse(is_done=True)


class Renames:
    """Answers the turns that a test sets, and keeps what it was asked."""

    def __init__(self) -> None:
        self.turns: Sequence[pb.RenameParentResponse | MetadataError] = (DONE,)
        self.asked: list[tuple[str, pb.RenameParentRequest]] = []

    async def rename_namespace(self, request: pb.RenameParentRequest, _: int) -> Any:
        return self._turn("namespace", request)

    async def rename_tenant(self, request: pb.RenameParentRequest, _: int) -> Any:
        return self._turn("tenant", request)

    def _turn(self, noun: str, request: pb.RenameParentRequest) -> pb.RenameParentResponse:
        kept = pb.RenameParentRequest()
        kept.CopyFrom(request)
        self.asked.append((noun, kept))
        turn = self.turns[min(len(self.asked), len(self.turns)) - 1]
        if isinstance(turn, MetadataError):
            raise turn
        return turn


@pytest.fixture
def renames() -> Renames:
    return Renames()


def routes_of(renames: Any, answered_ms: int = 60_000) -> list[Any]:
    return ParentRenameRoutes(renames, answered_ms).routes()


@pytest.fixture
async def client(renames: Renames):
    async with serving(routes_of(renames)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "noun", "name", "new_name"),
    [
        (OF_NAMESPACE, "namespace", "acme/old", "globex/new"),
        (OF_TENANT, "tenant", "acme", "globex"),
    ],
)
@pytest.mark.parametrize(("more", "grace_ms"), [({}, None), ({"graceSeconds": 0}, 0)])
async def test_turns_are_taken_until_the_rename_is_done(
    client, renames, path, noun, name, new_name, more, grace_ms
):
    renames.turns = (pb.RenameParentResponse(renamed=5, next_token="1"), DONE)

    answer = await client.call("POST", path, json={"newName": new_name, **more})

    assert answer.status == 204
    assert [asked for asked, _ in renames.asked] == [noun] * 2
    assert [each.token for _, each in renames.asked] == ["", "1"]
    for _, request in renames.asked:
        assert (request.name, request.new_name) == (name, new_name)
        assert (request.grace_ms if request.HasField("grace_ms") else None) == grace_ms


async def test_what_takes_longer_is_answered_with_how_far_it_is_and_goes_on(renames):
    renames.turns = (
        pb.RenameParentResponse(renamed=5, checked=7, namespace="acme/old", next_token="[1]"),
    )
    async with serving(routes_of(renames, answered_ms=0)) as client:
        answer = await client.call("POST", OF_NAMESPACE, json={"newName": "acme/new"})
        assert (answer.status, answer.json) == (
            202,
            {"renamed": 5, "checked": 7, "namespace": "acme/old", "goOnWith": "[1]"},
        )
        body = {"newName": "acme/new", "goOnWith": answer.json["goOnWith"]}
        await client.call("POST", OF_NAMESPACE, json=body)
    assert [request.token for _, request in renames.asked] == ["", "[1]"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"newName": "acme/new", "graceSeconds": WEEK_S}, 204),
        ({"newName": "acme/new", "graceSeconds": WEEK_S + 1}, 400),
        ({"newName": "acme/new", "graceSeconds": -1}, 400),
        ({"newName": ""}, 400),
        ({}, 400),
        ("acme/new", 400),
    ],
)
async def test_what_a_body_gets(client, body, status):
    assert (await client.call("POST", OF_NAMESPACE, json=body)).status == status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused(RejectionCode.NOT_FOUND, "no"), 404),
        (Refused(RejectionCode.PARENT_NOT_FOUND, "no"), 404),
        (Refused(RejectionCode.ALREADY_EXISTS, "no"), 409),
        (Refused(RejectionCode.NOT_ALLOWED, "no"), 409),
        (Refused(RejectionCode.NOT_EMPTY, "no"), 409),
        (Refused(RejectionCode.LIMIT_EXCEEDED, "no"), 412),
        (Unavailable("no"), 503),
    ],
)
async def test_what_a_failure_gets(client, renames, error, status):
    renames.turns = (error,)
    answer = await client.call("POST", OF_NAMESPACE, json={"newName": "acme/new"})
    assert answer.status == status


@pytest.mark.parametrize(
    ("place", "parts", "new_name", "make"),
    [
        (0, {"tenant": "acme", "namespace": "old"}, "globex/new", Resource.namespace),
        (1, {"tenant": "acme"}, "globex", Resource.tenant),
    ],
)
def test_the_client_may_delete_the_one_and_create_the_other(place, parts, new_name, make):
    route = routes_of(Renames())[place]
    body = route.body.type.validate_python({"newName": new_name})

    assert route.action is Action.DELETE
    assert [*route.besides(RestRequest(parts, body=body))] == [
        (Action.DELETE, make("/".join(parts.values()))),
        (Action.CREATE, make(new_name)),
    ]
