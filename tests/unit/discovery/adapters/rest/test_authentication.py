"""Which clients of the Admin REST are answered."""

from __future__ import annotations

import base64

import pytest
from structlog.testing import capture_logs

from discovery.adapters.rest.answer import content
from discovery.adapters.rest.route import Route
from nextgen.kernel.governance.access import Action
from tests.support.callers.role_proofs import OTHER_SECRET, PASSWORD, authenticator, token_of
from tests.support.discovery.rest_server import serving

PATH = "/admin/v2/tenants"


async def _names(_request):
    return content(["acme"])


ROUTES = (Route("GET", PATH, _names, "Names.", Action.LIST),)


def bearer(token):
    return {"Authorization": f"Bearer {token.decode()}"}


async def test_a_client_with_a_token_or_a_password_is_answered():
    basic = base64.b64encode(f"ada:{PASSWORD}".encode()).decode()
    async with serving(ROUTES, authenticator()) as client:
        for headers in (bearer(token_of("ada")), {"Authorization": f"Basic {basic}"}):
            assert (await client.call("GET", PATH, headers=headers)).json == ["acme"]


@pytest.mark.parametrize("path", [PATH, "/admin/v2/nothing", "/openapi.json", "/lookup/v2/x"])
async def test_another_client_gets_401_and_the_reason_whatever_the_path(path):
    async with serving(ROUTES, authenticator()) as client:
        for headers, why in (
            ({}, "proves its role"),
            (bearer(token_of("ada", lasts_s=-5)), "expired"),
            (bearer(token_of("ada", secret=OTHER_SECRET)), "signature"),
            ({"Authorization": "Basic YWRhOndyb25n"}, "wrong"),
            ({"Authorization": "Digest x"}, "neither"),
        ):
            with capture_logs() as logs:
                reply = await client.call("GET", path, headers=headers)
            assert (reply.status, why in reply.reason) == (401, True)
            assert "Bearer" in reply.headers["WWW-Authenticate"]
            secret = headers.get("Authorization", "none at all").partition(" ")[2]
            assert secret not in reply.reason + repr(logs) or not secret.strip("x")


async def test_probes_and_metrics_are_open():
    async with serving(ROUTES, authenticator()) as client:
        for path in ("/livez", "/readyz", "/metrics"):
            assert (await client.call("GET", path)).status == 200
