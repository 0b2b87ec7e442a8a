"""``namespaces rename`` and ``tenants rename``: what is asked for, how often, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from nextgen.cli.calls import discovery_client
from nextgen.cli.topics import parent_rename_commands
from nextgen.cli.topics.parent_rename_commands import progress_text
from nextgen.client.discovery.write_requests import RenameProgress
from nextgen.kernel.errors import Forbidden, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Item, Namespace

TURNS = (
    pb.RenameParentResponse(checked=1_500, namespace="acme/old", next_token="1"),
    pb.RenameParentResponse(checked=20, renamed=900, namespace="acme/old", next_token="2"),
    pb.RenameParentResponse(is_done=True, renamed=620, namespace="acme/old"),
)


class Discovery:
    """Answers one turn after the other, and keeps what it was asked."""

    def __init__(self) -> None:
        self.turns: Sequence[pb.RenameParentResponse | Refused] = TURNS
        self.calls: list[tuple[str, pb.RenameParentRequest]] = []
        self.topics = {"acme/old": 1_520, "acme/other": 80}
        self.is_count_refused = False

    def __call__(self, *_given: object, **_options: object) -> Discovery:
        return self

    async def __aenter__(self) -> Discovery:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        pass

    async def call(
        self,
        method: str,
        request: pb.RenameParentRequest | pb.CountTopicsRequest | pb.ListObjectsRequest,
    ) -> pb.RenameParentResponse | pb.CountTopicsResponse | pb.ListObjectsResponse:
        if isinstance(request, pb.CountTopicsRequest):
            if self.is_count_refused:
                raise Forbidden("it may not list")
            return pb.CountTopicsResponse(topics=self.topics[request.parent])
        if isinstance(request, pb.ListObjectsRequest):
            assert request.parent == "acme"
            return self._page(request.page_token)
        kept = pb.RenameParentRequest()
        kept.CopyFrom(request)
        self.calls.append((method, kept))
        turn = self.turns[len(self.calls) - 1]
        if isinstance(turn, Refused):
            raise turn
        return turn

    def _page(self, token: str) -> pb.ListObjectsResponse:
        """Return one namespace."""
        at = int(token or "0")
        name = [*self.topics][at]
        return pb.ListObjectsResponse(
            items=[Item(name=name, namespace=Namespace(name=name))],
            next_page_token=str(at + 1) if at + 1 < len(self.topics) else "",
        )


@pytest.fixture
def discovery(monkeypatch: pytest.MonkeyPatch) -> Discovery:
    discovery = Discovery()
    monkeypatch.setattr(discovery_client, "DiscoveryClient", discovery)
    return discovery


def rename(*arguments: str):
    return CliRunner().invoke(app, [*arguments, "--target", "127.0.0.1:1"])


@pytest.mark.parametrize(
    ("group", "method", "old", "new"),
    [
        ("namespaces", "RenameNamespace", "acme/old", "globex/new"),
        ("tenants", "RenameTenant", "acme", "globex"),
    ],
)
def test_turns_are_taken_until_the_rename_is_done(discovery, group, method, old, new):
    result = rename(group, "rename", old, new, "--grace", "90s", "--json")

    assert result.exit_code == 0, result.output
    assert [called for called, _ in discovery.calls] == [method] * 3
    requests = [request for _, request in discovery.calls]
    assert [(each.name, each.new_name, each.grace_ms) for each in requests] == [
        (old, new, 90_000)
    ] * 3
    assert [each.token for each in requests] == ["", "1", "2"]
    assert json.loads(result.stdout) == {
        "name": old,
        "new_name": new,
        "grace_ms": 90_000,
        "renamed": 1_520,
        "checked": 1_520,
    }


def test_what_becomes_of_former_names_is_said(discovery):
    shown = rename("namespaces", "rename", "acme/old", "acme/new").stdout
    assert shown == (
        "renamed namespace acme/old to acme/new with 1,520 topics; "
        "for 1h their former names lead to them too\n"
    )
    discovery.calls.clear()
    shown = rename("tenants", "rename", "acme", "globex", "--grace", "0").stdout
    assert shown == "renamed tenant acme to globex with 1,520 topics\n"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a terminal would have shown, line by line."""
    lines: list[str] = []

    def text(progress: RenameProgress, topics: int) -> str:
        lines.append(progress_text(progress, topics))
        return lines[-1]

    monkeypatch.setattr(parent_rename_commands, "progress_text", text)
    return lines


def test_progress_is_shown_as_done_of_all_topics(discovery, shown):
    rename("namespaces", "rename", "acme/old", "acme/new")

    assert shown == [
        "acme/old: 1,500 of 1,520 topics checked, 0 of 1,520 renamed",
        "acme/old: 1,520 of 1,520 topics checked, 900 of 1,520 renamed",
        "acme/old: 1,520 of 1,520 topics checked, 1,520 of 1,520 renamed",
    ]


def test_all_namespaces_of_a_tenant_are_counted(discovery, shown):
    rename("tenants", "rename", "acme", "globex")

    assert shown[0] == "acme/old: 1,500 of 1,600 topics checked, 0 of 1,600 renamed"


def test_topics_that_came_since_they_were_counted_are_in_the_total(discovery, shown):
    discovery.topics["acme/old"] = 1_510

    rename("namespaces", "rename", "acme/old", "acme/new")

    assert shown[-1] == "acme/old: 1,520 of 1,520 topics checked, 1,520 of 1,520 renamed"


def test_topics_that_cannot_be_counted_are_renamed_without_a_total(discovery, shown):
    discovery.is_count_refused = True

    result = rename("namespaces", "rename", "acme/old", "acme/new")

    assert result.exit_code == 0, result.output
    assert shown[0] == "acme/old: 1,500 topics checked, 0 renamed"


def test_a_refusal_in_the_middle_ends_the_command_with_its_reason(discovery):
    refused = Refused(RejectionCode.ALREADY_EXISTS, "persistent://acme/old/x keeps its name")
    discovery.turns = (*TURNS[:2], refused)

    result = rename("namespaces", "rename", "acme/old", "acme/new")

    assert result.exit_code == ExitCode.REFUSED
    assert "keeps its name" in result.stderr


def test_a_grace_that_is_no_duration_is_refused(discovery):
    result = rename("namespaces", "rename", "acme/old", "acme/new", "--grace", "soon")
    assert result.exit_code == ExitCode.USAGE
    assert not discovery.calls
