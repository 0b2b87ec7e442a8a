"""Topics that are created from the command line: what is asked for."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message
from typer.testing import CliRunner

from nextgen.cli.calls import discovery_client
from nextgen.main import app
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import (
    CONSISTENCY_ASYNC,
    CONSISTENCY_EFFECTIVE,
    TopicOutcome,
)


class Discovery:
    """Creates every topic, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Message] = []

    def __call__(self, *_given: object, **_options: object) -> Discovery:
        return self

    async def __aenter__(self) -> Discovery:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        pass

    async def call(self, _method: str, request: pb.CreateTopicsRequest) -> pb.CreateTopicsResponse:
        self.requests.append(request)
        return pb.CreateTopicsResponse(topics=[TopicOutcome() for _ in request.topics])


@pytest.mark.parametrize("group", ["topics", "scalable-topics"])
@pytest.mark.parametrize(
    ("options", "consistency"),
    [
        ([], CONSISTENCY_EFFECTIVE),
        (["--effective"], CONSISTENCY_EFFECTIVE),
        (["--committed"], CONSISTENCY_ASYNC),
    ],
)
def test_a_topic_can_be_used_everywhere_when_its_creation_returns_unless_less_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, group: str, options: list[str], consistency: int
):
    discovery = Discovery()
    monkeypatch.setattr(discovery_client, "DiscoveryClient", discovery)

    result = CliRunner().invoke(
        app, [group, "create", "acme/orders/x", "--target", "127.0.0.1:1", *options]
    )

    assert result.exit_code == 0, result.output
    (request,) = discovery.requests
    assert isinstance(request, pb.CreateTopicsRequest)
    assert request.consistency == consistency
