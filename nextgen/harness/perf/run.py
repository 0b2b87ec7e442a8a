"""Carries a measurement out on a cluster, prints it, and fails if a check failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.output import print_json, print_table
from nextgen.cli.local.plan import ClusterSize
from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.lifecycle.exit_code import CheckFailed

if TYPE_CHECKING:
    from nextgen.harness.perf.bench import Bench

Measure = Callable[["Bench"], Awaitable[dict[str, Any]]]


def run_measurement(
    measure: Measure,
    *,
    target: str | None,
    size: ClusterSize,
    json_output: bool,
    pulsar: str | None = None,
) -> None:
    """Measure at ``target``, or on a cluster of this size that is started for it.

    ``pulsar`` is the target's address for Pulsar clients; None if it is not needed.
    """

    async def work() -> dict[str, Any]:
        from nextgen.harness.perf.bench import bench

        if target and pulsar == "":
            raise RefusesToStart("--target needs --pulsar, where that node's Pulsar clients go")
        async with bench(target, size, pulsar=pulsar or "") as ready:
            return await measure(ready)

    async def checked() -> None:
        report = await work()
        if not json_output:
            rows = [(name, str(value)) for name, value in report.items() if name != "run"]
            print_table(f"perf {report['benchmark']}", ("what", "value"), rows)
        print_json(report)
        if report.get("wrong"):
            raise CheckFailed(f"{report['wrong']} answers or messages were wrong")

    run_command(checked())
