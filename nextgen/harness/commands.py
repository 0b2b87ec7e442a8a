"""``perf``, ``demo``, ``chaos``, ``history``, and checks that operators' commands leave to them.

The only module of the harness that ``nextgen.main`` imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from nextgen.cli.console.own_cluster_checks import bring_check
from nextgen.harness.chaos.command import register as register_chaos
from nextgen.harness.demo.command import register as register_demo
from nextgen.harness.history.commands import register as register_history
from nextgen.harness.perf.commands import register as register_perf


def register(app: typer.Typer) -> None:
    """Add the commands."""
    register_perf(app)
    register_demo(app)
    register_chaos(app)
    register_history(app)
    bring_check("shards verify", _verify_shards)
    bring_check("pipeline rebuild --verify", _verify_rebuild)


async def _verify_shards(*, events: int, shards: int) -> tuple[Any, dict[str, Any]]:
    from nextgen.harness.verify.shards import verify_own_cluster

    return await verify_own_cluster(events=events, shards=shards)


def _verify_rebuild(arguments: Sequence[str]) -> int:
    from nextgen.harness.verify.pipeline_rebuild import run_on_own_cluster

    return run_on_own_cluster(arguments)
