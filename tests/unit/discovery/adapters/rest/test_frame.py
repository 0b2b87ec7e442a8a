"""The frame of the Admin REST: codes and reasons of every failure, whatever a route does."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from pydantic import BaseModel, TypeAdapter

from discovery.adapters.rest.answer import DONE, TEXT, RestFailure, content, elsewhere, text
from discovery.adapters.rest.route import BOOLEAN, Body, Route
from nextgen.kernel.errors import (
    DeadlineExceeded,
    Forbidden,
    InvalidRequest,
    Overloaded,
    Refused,
    ServedElsewhere,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.limits.rest import (
    REST_BODY_BYTES_MAX,
    REST_QUERY_PARAMETERS_MAX,
    REST_TENANT_REQUESTS_MAX,
)
from tests.support.discovery.rest_server import serving


class Thing(BaseModel):
    """A body."""

    size: int = 0
    name: str = ""


THING = "/admin/v2/things/{tenant}/{namespace}/{topic}"
AT = "/admin/v2/things/acme/orders/paid"


class Service:
    """Answers as a test says, and remembers what it was given."""

    def __init__(self):
        self.given = []
        self.outcome = DONE

    async def work(self, request):
        self.given.append(request)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def flagged(self, request):
        return content(request.flag("force"))

    async def slowly(self, request):
        return await self.slow(request)

    async def named(self, request):
        return content(request.topic().text)


@pytest.fixture
def service():
    return Service()


@pytest.fixture
async def client(service):
    thing = Body(TypeAdapter(Thing))
    routes = [
        Route("GET", THING, service.work, "Read", Action.READ, answers={200: "It."}),
        Route("PUT", THING, service.work, "Make", Action.CREATE, body=thing),
        Route(
            "POST",
            f"{THING}/loose",
            service.work,
            "Change",
            Action.CHANGE,
            body=Body(TypeAdapter(Thing), is_required=False),
        ),
        Route("GET", f"{THING}/slow", service.slowly, "Read", Action.READ),
        Route("GET", f"{THING}/name", service.named, "Name", Action.READ),
        Route(
            "GET", "/admin/v2/flag", service.flagged, "Flag", Action.READ, query={"force": BOOLEAN}
        ),
        Route("GET", "/admin/v2/text", service.work, "Text", Action.READ, media_type=TEXT),
    ]
    async with serving(routes) as client:
        yield client


async def test_a_write_without_content_is_204_and_a_read_is_json(client, service):
    done = await client.call("PUT", AT, json={"size": 3})
    service.outcome = content(None)
    unset = await client.call("GET", AT)

    assert (done.status, done.body) == (204, b"")
    assert service.given[0].body == Thing(size=3)
    assert (unset.status, unset.body, unset.headers["Content-Type"]) == (
        200,
        b"null",
        "application/json",
    )


async def test_an_unknown_path_is_404_and_another_method_405_with_those_allowed(client):
    unknown = await client.call("GET", "/admin/v2/nothing")
    shorter = await client.call("GET", "/admin/v2/things/acme")
    other = await client.call("DELETE", AT)

    assert (unknown.status, shorter.status, other.status) == (404, 404, 405)
    assert "/admin/v2/nothing" in unknown.reason
    assert (other.headers["Allow"], "GET, PUT" in other.reason) == ("GET, PUT", True)


async def test_head_is_answered_like_get_without_a_body(client, service):
    service.outcome = content({"a": 1})

    answer = await client.call("HEAD", AT)

    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("paid", "paid"),
        ("p%61id", "paid"),
        ("a+b", "a b"),
        ("a%20b", "a b"),
        ("a%2Bb", "a+b"),
        ("100%25", "100%"),
        ("caf%C3%A9", "caf\u00e9"),
    ],
)
async def test_parts_are_decoded_as_forms_are(client, sent, name):
    answer = await client.call("GET", f"/admin/v2/things/acme/orders/{sent}/name")

    assert answer.json == f"persistent://acme/orders/{name}"


@pytest.mark.parametrize(
    "path",
    ["acme/orders/%FF", "ac%20me/orders/a", "ac%2Fme/orders/a", "acme/orders/a%2Fb", "a/b/%00"],
)
async def test_a_bad_name_is_412_with_its_reason_and_nothing_is_begun(client, service, path):
    answer = await client.call("GET", f"/admin/v2/things/{path}")

    assert (answer.status, service.given) == (412, [])
    assert answer.reason


async def test_a_slash_at_the_end_means_nothing(client):
    assert (await client.call("GET", f"{AT}/")).status == 204


async def test_parameters_that_are_not_read_are_ignored_and_flags_are_checked(client):
    plain = await client.call("GET", "/admin/v2/flag?authoritative=maybe&force=TRUE")
    default = await client.call("GET", "/admin/v2/flag?force")
    bad = await client.call("GET", "/admin/v2/flag?force=1")

    assert (plain.json, default.json) == (True, False)
    assert (bad.status, "force" in bad.reason) == (400, True)


async def test_rest_query_parameters_max_are_read_and_one_more_refused(client):
    most = "&".join(f"a{number}=" for number in range(REST_QUERY_PARAMETERS_MAX))

    assert (await client.call("GET", f"{AT}?{most}")).status == 204
    refused = await client.call("GET", f"{AT}?{most}&b=")
    assert (refused.status, str(REST_QUERY_PARAMETERS_MAX) in refused.reason) == (400, True)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_rest_body_bytes_max_are_read_and_one_more_refused(client, service, is_chunked):
    frame = b'{"size":3}'
    whole = frame + b" " * (REST_BODY_BYTES_MAX - len(frame))

    async def pieces(data):
        yield data[:100]
        yield data[100:]

    async def put(data):
        body = pieces(data) if is_chunked else data
        return await client.call("PUT", AT, data=body, headers={"Content-Type": "application/json"})

    assert (await put(whole)).status == 204
    refused = await put(whole + b" ")

    assert (refused.status, len(service.given)) == (413, 1)
    assert str(REST_BODY_BYTES_MAX) in refused.reason


async def test_a_compressed_body_is_bounded_by_what_it_unfolds_to(client, service):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    bomb = gzip.compress(b" " * (8 * 1024 * 1024))

    bombed = await client.call("PUT", AT, data=bomb, headers=headers)
    broken = await client.call("PUT", AT, data=b"no gzip", headers=headers)
    good = await client.call("PUT", AT, data=gzip.compress(b'{"size":1}'), headers=headers)

    assert (bombed.status, broken.status, good.status) == (413, 400, 204)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"nothing",
        b'{"size": "3"}',
        b'{"size": 3.5}',
        b'{"size": true}',
        b'{"size": null}',
        b'{"name": "\\ud800"}',
        b'{"name": "\xff"}',
        b"[" * 50_000,
        b'{"size": 1' + b"0" * 5_000 + b"}",
        b"[]",
        b"null",
    ],
)
async def test_a_body_of_another_form_is_400_with_its_reason(client, service, data):
    answer = await client.call("PUT", AT, data=data, headers={"Content-Type": "application/json"})

    assert (answer.status, service.given) == (400, [])
    assert 0 < len(answer.reason) <= 1_000


async def test_unknown_fields_of_a_body_are_ignored(client, service):
    answer = await client.call("PUT", AT, json={"size": 1, "of_a_later_release": {"a": [1]}})

    assert (answer.status, service.given[0].body) == (204, Thing(size=1))


async def test_a_body_of_another_type_is_415_and_one_without_a_type_is_json(client):
    form = await client.call("PUT", AT, data="a=b")
    typed = await client.call(
        "PUT", AT, data="{}", headers={"Content-Type": "Application/JSON; charset=UTF-8"}
    )
    untyped = await client.call("PUT", AT, data=b"{}", skip_auto_headers=["Content-Type"])

    assert (form.status, typed.status, untyped.status) == (415, 204, 204)


async def test_an_optional_body_may_be_missing_or_empty(client, service):
    missing = await client.call("POST", f"{AT}/loose")
    empty = await client.call("POST", f"{AT}/loose", data=b"")

    assert (missing.status, empty.status) == (204, 204)
    assert [request.body for request in service.given] == [None, None]


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 204),
        ("text/html, application/*;q=0.5", 204),
        ("*/*", 204),
        ("text/html", 406),
        ("application/xml;q=0.9, text/*", 406),
    ],
)
async def test_a_client_that_takes_no_json_gets_406(client, accept, status):
    assert (await client.call("GET", AT, headers={"Accept": accept})).status == status


@pytest.mark.parametrize("accept", ["text/plain", "application/json"])
async def test_a_text_is_answered_as_text_also_to_libraries_that_name_json(client, service, accept):
    service.outcome = text("ok")

    answer = await client.call("GET", "/admin/v2/text", headers={"Accept": accept})

    assert (answer.body, answer.headers["Content-Type"]) == (b"ok", "text/plain; charset=utf-8")


FAILURES = [
    (RestFailure(405, "no"), 405, None),
    (Refused(RejectionCode.NOT_FOUND, "no"), 404, None),
    (Refused(RejectionCode.PARENT_NOT_FOUND, "no"), 404, None),
    (Refused(RejectionCode.ALREADY_EXISTS, "no"), 409, None),
    (Refused(RejectionCode.NOT_EMPTY, "no"), 409, None),
    (Refused(RejectionCode.VERSION_MISMATCH, "no"), 409, None),
    (Refused(RejectionCode.INVALID_NAME, "no"), 412, None),
    (Refused(RejectionCode.LIMIT_EXCEEDED, "no"), 412, None),
    (Refused(RejectionCode.NO_CAPACITY, "no"), 503, "1"),
    (Forbidden("no"), 403, None),
    (InvalidRequest("no"), 400, None),
    (Overloaded("no", 2_500), 503, "3"),
    (DeadlineExceeded("no"), 503, "1"),
]


@pytest.mark.parametrize(("error", "status", "retry_after"), FAILURES)
async def test_every_failure_has_its_status_and_its_reason(
    client, service, error, status, retry_after
):
    service.outcome = error

    answer = await client.call("GET", AT)

    assert (answer.status, answer.json) == (status, {"reason": "no"})
    assert answer.headers.get("Retry-After") == retry_after


async def test_a_mistake_of_ours_is_answered_and_the_next_request_is_served(client, service):
    service.outcome = KeyError("oops")
    broken = await client.call("GET", AT)
    service.outcome = DONE

    assert (broken.status, "oops" in broken.reason) == (500, True)
    assert (await client.call("GET", AT)).status == 204


async def test_rest_tenant_requests_max_are_worked_on_and_one_more_is_refused_but_to_others(
    client, service
):
    answered = asyncio.Event()

    async def work(request):
        service.given.append(request)
        await answered.wait()
        return DONE

    service.slow = work
    requests = [
        asyncio.create_task(client.call("GET", f"{AT}/slow"))
        for _ in range(REST_TENANT_REQUESTS_MAX)
    ]
    while len(service.given) < REST_TENANT_REQUESTS_MAX:
        await asyncio.sleep(0.001)

    refused = await client.call("GET", f"{AT}/slow")
    of_another = asyncio.create_task(client.call("GET", f"{AT.replace('acme', 'other')}/slow"))
    answered.set()

    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert {(await each).status for each in [*requests, of_another]} == {204}
    assert (await client.call("GET", f"{AT}/slow")).status == 204


@pytest.mark.parametrize(
    ("web_urls", "base"),
    [
        ("http://b1:8080", "http://b1:8080"),
        ("http://b1:8080,https://b1:8443", "http://b1:8080"),
        ("https://b1:8443", "https://b1:8443"),
    ],
)
async def test_a_topic_of_a_stock_broker_is_a_redirect_to_its_admin_rest(service, web_urls, base):
    service.outcome = ServedElsewhere(web_urls)
    route = Route("GET", THING, service.work, "A thing", Action.READ)
    path = "/admin/v2/things/acme/orders/a%2Cb?force=true&x=%C3%A4"
    async with serving([route]) as client:
        reply = await client.call("GET", path, allow_redirects=False)

    assert reply.status == 307
    assert reply.headers["Location"] == base + path
    assert "an Apache Pulsar broker serves the topic" in reply.reason


def test_a_request_over_tls_is_redirected_to_a_port_of_tls():
    both = ServedElsewhere("http://b1:8080,https://b1:8443")

    answer = elsewhere(both, scheme="https", path="/x")

    assert answer.headers == {"Location": "https://b1:8443/x"}
