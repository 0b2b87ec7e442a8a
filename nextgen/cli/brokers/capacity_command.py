"""``brokers set-capacity``: change how many units a live broker may have."""

from __future__ import annotations

from typing import Annotated

import typer

from nextgen.cli.brokers.rebalance_command import (
    WAIT_MS_DEFAULT,
    NoWait,
    TimeoutMs,
    shown_progress,
)
from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import as_dict, counted, print_json, print_line
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.cluster import BROKER_CAPACITY_UNITS_MAX


def set_capacity(
    broker: Annotated[str, typer.Argument(help="Broker id.")],
    units: Annotated[int, typer.Argument(help="Units: topics and partitions, at least 1.")],
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Change the capacity of a live broker; wait until it has no more units than that.

    UNITS is at most what the broker announced at its start (--capacity-units). Units above it move
    to other brokers, those without traffic first. A restarted broker has what it announces.
    """

    async def work() -> None:
        from nextgen.cli.brokers import evacuation_run
        from nextgen.cli.calls.discovery_client import DiscoveryClient

        if not 1 <= units <= BROKER_CAPACITY_UNITS_MAX:
            raise InvalidRequest(f"UNITS is {units}, it may be 1 to {BROKER_CAPACITY_UNITS_MAX}")
        async with DiscoveryClient(endpoints_of(target, data_dir)) as client:
            answer = await evacuation_run.set_capacity(client, broker, units)
            done = None
            if not no_wait:
                with shown_progress(f"shrinking {broker}", is_shown=not json_output) as show:
                    done = await evacuation_run.follow_shrink(
                        client, answer.broker.session_id, units, show, timeout_ms=timeout_ms
                    )
        if json_output:
            moved = {} if done is None else {"units": done.total, "seconds": done.seconds}
            print_json({**as_dict(answer.broker), **moved})
        elif done is None:
            print_line(f"{broker} may have {counted(units, 'unit')} from here on")
        else:
            left = counted(done.total, "unit")
            print_line(f"{broker} has at most {counted(units, 'unit')}: {left} left it")

    run_command(work())
