"""``perf``, ``demo``, ``chaos``, ``history``, and checks that operators' commands leave to them.

The only module of the harness that ``nextgen.main`` imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from nextgen.cli.chaos_command import register as register_chaos
from nextgen.cli.console.own_cluster_checks import bring_check
from nextgen.cli.demo_command import register as register_demo
from nextgen.cli.history_commands import register as register_history
from nextgen.cli.perf_commands import register as register_perf


def register(app: typer.Typer) -> None:
    """Add the commands."""
    register_perf(app)
    register_demo(app)
    register_chaos(app)
    register_history(app)
    bring_check("shards verify", _verify_shards)
    bring_check("pipeline rebuild --verify", _verify_rebuild)


async def _verify_shards(*, events: int, shards: int) -> tuple[Any, dict[str, Any]]:
    from nextgen.cli.shard_verify_run import verify_own_cluster

    return await verify_own_cluster(events=events, shards=shards)


def _verify_rebuild(arguments: Sequence[str]) -> int:
    from nextgen.cli.pipeline_rebuild import run_on_own_cluster

    return run_on_own_cluster(arguments)
