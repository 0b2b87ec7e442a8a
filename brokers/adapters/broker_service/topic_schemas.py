"""A topic's schemas as ``TopicAdmin`` carries them."""

from __future__ import annotations

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.schemas import compatibility
from brokers.domain.schemas.compatibility import InvalidSchema
from brokers.domain.schemas.schema import Schema
from brokers.service.topics.schemas import TopicSchemas
from brokers.wire import stored_schema
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.pulsar import SCHEMA_BYTES_MAX, TOPIC_ADMIN_PAYLOAD_BYTES_MAX
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.pulsar import PulsarApi_pb2 as pulsar


def schema_of(given: wire.TopicSchema) -> Schema:
    """Return the schema in a request, whatever its data.

    Raises:
        InvalidRequest: Pulsar's protocol has no such kind.
    """
    if given.kind not in pulsar.Schema.Type.values():
        raise InvalidRequest(f"there is no kind {given.kind} of schemas")
    return Schema(given.name, given.kind, given.data, dict(given.properties))


def valid_schema(given: wire.TopicSchema) -> Schema:
    """Return the schema in a request.

    Raises:
        InvalidRequest: Its data is no schema of its kind, or it is larger than may be.
    """
    schema = schema_of(given)
    size = len(stored_schema(schema))
    if size > SCHEMA_BYTES_MAX:
        raise InvalidRequest(f"a schema has at most {SCHEMA_BYTES_MAX} bytes, this one {size}")
    try:
        compatibility.check_schema(schema)
    except InvalidSchema as error:
        raise InvalidRequest(str(error)) from error
    return schema


def list_schemas(schemas: TopicSchemas, first: int) -> wire.ListSchemasResponse:
    """Return versions from number ``first`` on, as many as fit into an answer, at least one."""
    listed = wire.ListSchemasResponse()
    size = 0
    for version, schema in schemas.versions(first):
        row = wire.SchemaVersion(version=version, schema=_to_proto(schema))
        size += row.ByteSize()
        if listed.versions and size > TOPIC_ADMIN_PAYLOAD_BYTES_MAX:
            listed.has_more = True
            break
        listed.versions.append(row)
    return listed


async def check_schema(
    schemas: TopicSchemas, schema: Schema, *, is_find_only: bool
) -> wire.CheckSchemaResponse:
    """Return whether a schema is a version, and whether it may become one."""
    strategy = f"SCHEMA_COMPATIBILITY_{schemas.strategy.upper()}"
    checked = wire.CheckSchemaResponse(strategy=strategy, is_compatible=True)
    try:
        version = schemas.version_of(schema) if is_find_only else await schemas.check(schema)
    except Refusal as refusal:
        if refusal.code != ServerError.INCOMPATIBLE_SCHEMA:
            raise
        checked.is_compatible, checked.obstacle = False, refusal.message
        return checked
    if version is not None:
        checked.version = version
    elif is_find_only:
        checked.is_compatible = False
    return checked


def _to_proto(schema: Schema) -> wire.TopicSchema:
    return wire.TopicSchema(
        name=schema.name, kind=schema.kind, data=schema.data, properties=schema.properties
    )
