"""When a supervised cluster counts as ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextgen.cli.local import supervise
from nextgen.cli.local.plan import MINIMAL, make_plan
from nextgen.cli.local.supervise import Supervisor


class ReadyCluster:
    """Processes that are ready at once; counts how often they were waited for."""

    def __init__(self) -> None:
        self.waits = 0

    async def wait_ready(self) -> None:
        self.waits += 1


def supervisor_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[list[str]], notices: list[str]
) -> tuple[Supervisor, ReadyCluster]:
    monkeypatch.setattr(supervise, "SETTLE_INTERVAL_MS", 0)

    async def unsettled() -> list[str]:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    supervisor = Supervisor(make_plan(MINIMAL), tmp_path, notices.append, unsettled=unsettled)
    cluster = ReadyCluster()
    supervisor.cluster = cluster  # type: ignore[assignment]
    return supervisor, cluster


async def test_a_cluster_is_ready_once_its_preferred_replicas_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given: a cluster two of whose leaderships move one after the other.
    notices: list[str] = []
    answers = [["shard 1 is led by b", "shard 2 is led by b"], ["shard 2 is led by b"], []]
    supervisor, cluster = supervisor_of(tmp_path, monkeypatch, answers, notices)

    # When: it is waited for.
    await supervisor._wait_ready()

    # Then: it is ready after the last move, when every process is ready again.
    assert (answers, cluster.waits, notices) == ([[]], 2, [])


async def test_a_cluster_whose_leaders_do_not_settle_is_ready_and_says_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    monkeypatch.setattr(supervise, "SETTLE_MS_MAX", 0)
    supervisor, cluster = supervisor_of(
        tmp_path, monkeypatch, [["shard 1 is led by b", "shard 2 has no leader"]], notices
    )

    await supervisor._wait_ready()

    assert notices == ["shard 1 is led by b; shard 2 has no leader"]
    assert cluster.waits == 2
