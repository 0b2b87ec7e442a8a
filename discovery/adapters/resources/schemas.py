"""Schemas of a topic: /admin/v2/schemas/{tenant}/{namespace}/{topic}

Each partition keeps the versions of its own messages. A change goes to all partitions, and a
repetition finishes what only some carried out; reads and checks go to the first partition. Single
versions are read by ``lookups``, as clients do before they connect.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from discovery.adapters.resources.schema_content import TYPE_NAMES, schema_content, schema_data
from discovery.adapters.rest.answer import Answer, RestFailure, Stream, content, streamed
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import BOOLEAN, Body, Route, Work
from discovery.service.admin.topic_operations import TopicOperations
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action, ResourceKind
from nextgen.kernel.limits.rest import REST_SCHEMA_BODY_BYTES_MAX
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.policies_pb2 import SchemaCompatibility
from protos.pulsar.PulsarApi_pb2 import Schema

SCHEMAS = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"

_NO_VERSION = -1
"""Pulsar's answer for a schema that is no version."""

_STRATEGY_PREFIX = "SCHEMA_COMPATIBILITY_"

_KINDS = {
    name: kind
    for kind, name in TYPE_NAMES.items()
    # These stand for the absence of a schema.
    if kind not in (Schema.NoSchema, Schema.AutoConsume)
}
_Type: Any = Literal[tuple(_KINDS)]


class SchemaBody(BaseModel):
    """A schema; ``schema`` is its definition as text, empty for a primitive type."""

    type: _Type
    text: str = Field(alias="schema")
    properties: dict[str, str] | None = None


class Schemas:
    """Answers as a Pulsar does, except for a topic that does not exist: 404, it has no schema."""

    def __init__(self, operations: TopicOperations) -> None:
        self._operations = operations

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                f"{SCHEMAS}/schemas",
                self._list,
                "All versions of a topic's schema",
                Action.READ,
                answers={200: "The versions that are not deleted, ascending."},
            ),
            Route(
                "GET",
                f"{SCHEMAS}/metadata",
                self._metadata,
                "Where the versions of a topic's schema are",
                Action.READ,
                answers={200: "The latest version and all of them."},
            ),
            _post(
                "schema",
                self._add,
                "Add a version to a topic's schema",
                Action.PRODUCE,
                {200: "Its version.", 409: "It is not compatible.", 422: "It is no schema."},
            ),
            Route(
                "DELETE",
                f"{SCHEMAS}/schema",
                self._delete,
                "Delete all versions of a topic's schema",
                Action.CHANGE,
                query={"force": BOOLEAN},
                answers={200: "The number of the next version."},
            ),
            _post(
                "compatibility",
                self._check,
                "Whether a schema may become a topic's next version",
                Action.READ,
                {200: "Whether it may, and the strategy.", 422: "It is no schema."},
                scope=ResourceKind.NAMESPACE,
            ),
            _post(
                "version",
                self._find,
                "The version of a schema",
                Action.READ,
                {200: "Its number; -1 if it is no version.", 422: "It is no schema."},
            ),
        ]

    async def _list(self, request: RestRequest) -> Stream:
        return await streamed(self._versions((await self._units(request))[0]))

    async def _versions(self, unit: TopicName) -> AsyncGenerator[bytes]:
        beginning = '{"getSchemaResponses":['
        async with aclosing(self._pages(unit)) as pages:
            async for page in pages:
                rows = []
                for each in page:
                    schema = each.schema
                    row = schema_content(each.version, schema.kind, schema.data, schema.properties)
                    rows.append(json.dumps(row, separators=(",", ":")))
                yield (beginning + ",".join(rows)).encode()
                beginning = ","
        yield b"]}" if beginning == "," else f"{beginning}]}}".encode()

    async def _pages(self, unit: TopicName) -> AsyncGenerator[Sequence[admin_pb.SchemaVersion]]:
        """Yield all versions in order, a page at a time; no page is empty."""
        first, has_more = 0, True
        while has_more:
            page = await self._operations.call(
                unit, admin_pb.ListSchemasRequest(first_version=first)
            )
            has_more = page.has_more and bool(page.versions)
            if page.versions:
                yield page.versions
                first = page.versions[-1].version + 1

    async def _metadata(self, request: RestRequest) -> Answer:
        unit = (await self._units(request))[0]
        rows = [_entry(each.version) async for page in self._pages(unit) for each in page]
        if not rows:
            raise Refused(RejectionCode.NOT_FOUND, f"topic {unit.text} has no schema")
        return content({"info": rows[-1], "index": rows})

    async def _add(self, request: RestRequest) -> Answer:
        wanted = partial(admin_pb.AddSchemaRequest, schema=_schema(request))
        units = await self._units(request)
        with _invalid_is_422():
            answers = await self._operations.call_all(units, wanted)
        return content({"version": {"version": answers[units[0]].version}})

    async def _delete(self, request: RestRequest) -> Answer:
        wanted = partial(admin_pb.DeleteSchemaRequest, is_forced=request.flag("force"))
        units = await self._units(request)
        answers = await self._operations.call_all(units, wanted)
        return content({"version": answers[units[0]].next_version})

    async def _check(self, request: RestRequest) -> Answer:
        checked = await self._checked(request, is_find_only=False)
        strategy = SchemaCompatibility.Name(checked.strategy).removeprefix(_STRATEGY_PREFIX)
        return content(
            {"compatibility": checked.is_compatible, "schemaCompatibilityStrategy": strategy}
        )

    async def _find(self, request: RestRequest) -> Answer:
        found = await self._checked(request, is_find_only=True)
        return content({"version": found.version if found.HasField("version") else _NO_VERSION})

    async def _checked(
        self, request: RestRequest, *, is_find_only: bool
    ) -> admin_pb.CheckSchemaResponse:
        wanted = admin_pb.CheckSchemaRequest(schema=_schema(request), is_find_only=is_find_only)
        units = await self._units(request)
        with _invalid_is_422():
            checked: admin_pb.CheckSchemaResponse = await self._operations.call(units[0], wanted)
        return checked

    async def _units(self, request: RestRequest) -> list[TopicName]:
        return await self._operations.units(request.topic(), request.timeout_ms)


@contextmanager
def _invalid_is_422() -> Iterator[None]:
    """Have a request that a broker calls invalid answered with 422: its schema is."""
    try:
        yield
    except InvalidRequest as error:
        raise RestFailure(422, str(error)) from error


def _entry(version: int) -> dict[str, int]:
    """Return ``SchemaMetadata.Entry``. No ledger: schemas are facts beside the topic's entries."""
    return {"ledgerId": -1, "entryId": -1, "version": version}


def _schema(request: RestRequest) -> admin_pb.TopicSchema:
    body: SchemaBody = request.body
    kind = _KINDS[body.type]
    try:
        data = schema_data(kind, body.text)
    except ValueError as error:
        raise RestFailure(422, str(error)) from error
    name = request.topic().local_name
    return admin_pb.TopicSchema(name=name, kind=kind, data=data, properties=body.properties or {})


def _post(
    path: str,
    work: Work,
    summary: str,
    action: Action,
    answers: dict[int, str],
    scope: ResourceKind | None = None,
) -> Route:
    body = Body(TypeAdapter(SchemaBody), bytes_max=REST_SCHEMA_BODY_BYTES_MAX)
    path = f"{SCHEMAS}/{path}"
    return Route("POST", path, work, summary, action, body=body, answers=answers, scope=scope)
