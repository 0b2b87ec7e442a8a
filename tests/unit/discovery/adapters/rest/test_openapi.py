"""The OpenAPI document says what the table of routes says."""

import json

from pydantic import BaseModel, TypeAdapter

from discovery.adapters.resources.lookups import Lookups
from discovery.adapters.rest.answer import DONE
from discovery.adapters.rest.openapi import openapi_document
from discovery.adapters.rest.route import BOOLEAN, Body, Route
from nextgen.kernel.governance.access import Action
from tests.support.discovery.rest_server import serving


class Inner(BaseModel):
    """A part of a body."""

    count: int


class Outer(BaseModel):
    """A body."""

    inner: Inner


async def nothing(_request):
    return DONE


ROUTE = Route(
    "POST",
    "/admin/v2/{domain}/{tenant}/{thing}",
    nothing,
    "Change a thing",
    Action.CHANGE,
    body=Body(TypeAdapter(Outer), media_types=("application/json", "application/a+json")),
    query={"force": BOOLEAN},
    answers={204: "It is changed.", 409: "It is there."},
)


def test_an_operation_has_its_parameters_its_body_and_its_answers():
    document = json.loads(openapi_document([ROUTE]).body or b"")
    operation = document["paths"][ROUTE.path]["post"]

    assert [(each["name"], each["in"], each["required"]) for each in operation["parameters"]] == [
        ("domain", "path", True),
        ("tenant", "path", True),
        ("thing", "path", True),
        ("force", "query", False),
    ]
    assert operation["parameters"][0]["schema"]["enum"] == ["persistent", "non-persistent"]
    body = operation["requestBody"]
    assert (body["required"], sorted(body["content"])) == (
        True,
        ["application/a+json", "application/json"],
    )
    schema = body["content"]["application/json"]["schema"]
    assert schema["properties"]["inner"] == {"$ref": "#/components/schemas/Inner"}
    assert document["components"]["schemas"]["Inner"]["required"] == ["count"]
    assert operation["responses"]["204"] == {"description": "It is changed."}
    assert {"400", "409", "413", "415", "503"} <= set(operation["responses"])


def test_an_operation_on_a_topic_may_be_redirected_to_a_stock_broker():
    route = Route("GET", "/admin/v2/{tenant}/{topic}", nothing, "Read", Action.READ)
    document = json.loads(openapi_document([ROUTE, route]).body or b"")

    assert "307" in document["paths"][route.path]["get"]["responses"]
    assert "307" not in document["paths"][ROUTE.path]["post"]["responses"]


async def test_the_document_is_served_and_has_every_route():
    routes = Lookups(None, None).routes()

    async with serving(routes) as client:
        answer = await client.call("GET", "/openapi.json")

    assert answer.status == 200
    served = {
        (path, method) for path, methods in answer.json["paths"].items() for method in methods
    }
    assert served == {(route.path, route.method.lower()) for route in routes}
    operations = [
        each["operationId"] for path in answer.json["paths"].values() for each in path.values()
    ]
    assert len(set(operations)) == len(operations)
