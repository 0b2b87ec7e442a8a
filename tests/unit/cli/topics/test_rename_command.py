"""``topics rename``: what is asked for, and what is shown."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from nextgen.cli.calls import discovery_client
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import CONSISTENCY_ASYNC, CONSISTENCY_EFFECTIVE

OLD, NEW = "persistent://acme/orders/paid", "acme/archive/paid"


class Discovery:
    """Renames every topic, and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, pb.RenameTopicRequest]] = []

    def __call__(self, *_given: object, **_options: object) -> Discovery:
        return self

    async def __aenter__(self) -> Discovery:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        pass

    async def call(self, method: str, request: pb.RenameTopicRequest) -> pb.WriteResponse:
        self.calls.append((method, request))
        return pb.WriteResponse(id="t-1", version=3, shard_id=2, position=9)


@pytest.fixture
def discovery(monkeypatch: pytest.MonkeyPatch) -> Discovery:
    discovery = Discovery()
    monkeypatch.setattr(discovery_client, "DiscoveryClient", discovery)
    return discovery


def rename(*options: str):
    given = ["topics", "rename", OLD, NEW, "--target", "127.0.0.1:1", *options]
    return CliRunner().invoke(app, given)


@pytest.mark.parametrize(
    ("options", "grace_ms", "consistency"),
    [
        ([], 3_600_000, CONSISTENCY_EFFECTIVE),
        (["--grace", "90s"], 90_000, CONSISTENCY_EFFECTIVE),
        (["--grace", "7d", "--committed"], 604_800_000, CONSISTENCY_ASYNC),
        (["--grace", "0"], 0, CONSISTENCY_EFFECTIVE),
    ],
)
def test_a_topic_is_renamed_for_all_at_once_and_its_former_name_leads_to_it(
    discovery: Discovery, options: list[str], grace_ms: int, consistency: int
) -> None:
    result = rename(*options)

    assert result.exit_code == 0, result.output
    ((method, request),) = discovery.calls
    assert method == "RenameTopic"
    assert (request.name, request.new_name) == (OLD, NEW)
    assert (request.HasField("grace_ms"), request.grace_ms) == (True, grace_ms)
    assert request.consistency == consistency
    assert len(request.command_id) == 16


def test_what_becomes_of_the_former_name_is_said(discovery: Discovery) -> None:
    assert rename("--grace", "1d").stdout == (
        f"renamed {OLD} to {NEW}; for 1d {OLD} leads to it too\n"
    )
    assert rename("--grace", "0").stdout == f"renamed {OLD} to {NEW}; {OLD} leads nowhere\n"
    shown = json.loads(rename("--json").stdout)
    assert (shown["name"], shown["new_name"], shown["id"]) == (OLD, NEW, "t-1")
    assert (shown["grace_ms"], shown["position"]) == (3_600_000, 9)


@pytest.mark.parametrize("text", ["1", "1 h", "h", "-1s", "0s", "1.5h"])
def test_a_grace_that_is_no_duration_is_refused(discovery: Discovery, text: str) -> None:
    result = rename(f"--grace={text}")
    assert result.exit_code == ExitCode.USAGE
    assert not discovery.calls
