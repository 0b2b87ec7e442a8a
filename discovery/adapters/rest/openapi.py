"""The OpenAPI document (3.1) of a table of routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from discovery.adapters.rest.answer import Answer, content
from discovery.adapters.rest.route import TEXT_VALUE, VARIABLES, Body, Route

_REASON = {"$ref": "#/components/responses/Reason"}
_COMMON = ("400", "401", "403", "404", "406", "412", "503")
"""Statuses that every route may answer."""

_OF_BODIES = ("413", "415")


def openapi_document(routes: Iterable[Route]) -> Answer:
    """Return the document as an answer."""
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return content(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Pulsar NextGen Admin REST",
                "version": "v2",
                "description": "Apache Pulsar's Admin REST v2, as far as it is served here.",
            },
            "paths": paths,
            "components": {
                "schemas": schemas,
                "responses": {
                    "Reason": {
                        "description": "It failed, and this is why.",
                        "content": {
                            "application/json": {
                                "schema": {
                                    "type": "object",
                                    "properties": {"reason": {"type": "string"}},
                                    "required": ["reason"],
                                }
                            }
                        },
                    }
                },
            },
        }
    )


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": [
            *(
                _parameter(name, "path", VARIABLES.get(name, {**TEXT_VALUE, "minLength": 1}))
                for name in route.variables
            ),
            *(_parameter(name, "query", schema) for name, schema in route.query.items()),
        ],
        "responses": _responses(route),
    }
    if route.body is not None:
        schema = _schema_of(route.body, schemas)
        operation["requestBody"] = {
            "required": route.body.is_required,
            "content": {media_type: {"schema": schema} for media_type in route.body.media_types},
        }
    return operation


def _responses(route: Route) -> dict[str, Any]:
    statuses = (*_COMMON, *(_OF_BODIES if route.body is not None else ()))
    responses: dict[str, Any] = dict.fromkeys(statuses, _REASON)
    if "topic" in route.variables and not route.is_lookup:
        responses["307"] = {"description": "An Apache Pulsar broker serves the topic: ask there."}
    for status, meaning in route.answers.items():
        if status >= 400:
            responses[str(status)] = _REASON
        elif status == 204:
            responses[str(status)] = {"description": meaning}
        else:
            responses[str(status)] = {
                "description": meaning,
                "content": {route.media_type: {"schema": {}}},
            }
    return dict(sorted(responses.items()))


def _parameter(name: str, place: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": dict(schema)}


def _schema_of(body: Body, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a body's schema; the types that it is made of go to ``schemas``."""
    schema = body.type.json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    return schema


def _tag(route: Route) -> str:
    parts = route.parts
    return parts[0] if parts[0] == "lookup" else parts[2]


def _operation_id(route: Route) -> str:
    words = (part.strip("{}") for part in route.parts)
    return "_".join((route.method.lower(), *words))
