"""/admin/v2/brokers/configuration: names, values, and what is refused."""

import pytest

from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.governance.service_settings import DEFAULT_TEXTS
from tests.support.discovery.rest_world import DecidedConfiguration, rest_world

PATH = "/admin/v2/brokers/configuration"
SEGMENTS = "scalableTopicMaxSegments"


@pytest.fixture
async def rest():
    async with rest_world() as world:
        yield world


async def test_the_settings_have_their_defaults_at_first(rest):
    assert await rest.get(PATH) == (200, sorted(DEFAULT_TEXTS))
    assert await rest.get(f"{PATH}/values") == (200, {})
    assert await rest.get(f"{PATH}/runtime") == (
        200,
        {
            "clusterName": "local",
            "metadataStoreUrl": "nextgen:m-1:6700,m-2:6700",
            **DEFAULT_TEXTS,
        },
    )


async def test_a_setting_is_changed_and_given_back(rest):
    changed = await rest.call("POST", f"{PATH}/{SEGMENTS}/16")

    assert changed.status == 204
    assert await rest.get(f"{PATH}/values") == (200, {SEGMENTS: "16"})
    assert (await rest.get(f"{PATH}/runtime"))[1][SEGMENTS] == "16"
    assert rest.link.view.settings.auto_scale.max_segments == 16

    for _ in range(2):
        assert (await rest.call("DELETE", f"{PATH}/{SEGMENTS}")).status == 204
    assert await rest.get(f"{PATH}/values") == (200, {})
    assert (await rest.get(f"{PATH}/runtime"))[1][SEGMENTS] == "64"


async def test_a_change_keeps_what_else_was_changed(rest):
    for name, text in ((SEGMENTS, "16"), ("loadBalancerEnabled", "FALSE"), (SEGMENTS, "8")):
        assert (await rest.call("POST", f"{PATH}/{name}/{text}")).status == 204

    values = {SEGMENTS: "8", "loadBalancerEnabled": "FALSE"}
    assert await rest.get(f"{PATH}/values") == (200, values)


async def test_a_value_may_be_quoted(rest):
    name = "scalableTopicLoadReportIntervalSeconds"

    assert (await rest.call("POST", f"{PATH}/{name}/0%2E5")).status == 204
    assert rest.link.view.settings.load_reporting.interval_ms == 500


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        ("POST", "brokerShutdownTimeoutMs/1", "brokerShutdownTimeoutMs is no dynamic setting"),
        ("DELETE", "brokerShutdownTimeoutMs", "brokerShutdownTimeoutMs is no dynamic setting"),
        ("POST", f"{SEGMENTS}/many", f"{SEGMENTS} is no number"),
        ("POST", f"{SEGMENTS}/0", f"{SEGMENTS} is 0, at least 1 is needed"),
        ("POST", "scalableTopicMinSegments/65", f"{SEGMENTS} is 64, at least 65 is needed"),
    ],
)
async def test_what_is_no_setting_or_makes_no_sense_is_refused(rest, method, path, reason):
    answer = await rest.call(method, f"{PATH}/{path}")

    assert (answer.status, answer.reason) == (412, reason)
    assert await rest.get(f"{PATH}/values") == (200, {})


async def test_a_cluster_manager_that_does_not_answer_is_trouble_that_passes(rest, monkeypatch):
    async def get(_self):
        raise Unavailable("not connected to the cluster manager's leader")

    monkeypatch.setattr(DecidedConfiguration, "get", get)

    assert (await rest.call("POST", f"{PATH}/{SEGMENTS}/16")).status == 503


async def test_a_configuration_that_changes_all_the_time_is_a_conflict(rest, monkeypatch):
    async def set_configuration(_self, _configuration):
        raise Refused("VERSION_MISMATCH", "the present configuration is of version 9")

    monkeypatch.setattr(DecidedConfiguration, "set", set_configuration)

    assert (await rest.call("POST", f"{PATH}/{SEGMENTS}/16")).status == 409
