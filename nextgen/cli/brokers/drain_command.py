"""``brokers drain``: empty a broker while its clients go on."""

from __future__ import annotations

from typing import Annotated

import typer

from nextgen.cli.brokers.rebalance_command import (
    WAIT_MS_DEFAULT,
    NoWait,
    Rate,
    TimeoutMs,
    parse_rate,
    shown_progress,
)
from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import as_dict, counted, print_json, print_line
from nextgen.kernel.limits.placement import DRAIN_UNITS_PER_SECOND


def drain(
    broker: Annotated[str, typer.Argument(help="Broker id.")],
    rate: Rate = f"{DRAIN_UNITS_PER_SECOND}/s",
    undo: Annotated[
        bool, typer.Option("--undo", help="It keeps what it still has, and gets more again.")
    ] = False,
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Move every unit of a broker to others, and give it none; wait until it is empty.

    The last broker that may be given units is refused.
    """

    async def work() -> None:
        from nextgen.cli.brokers import evacuation_run
        from nextgen.cli.calls.discovery_client import DiscoveryClient

        async with DiscoveryClient(endpoints_of(target, data_dir)) as client:
            answer = await evacuation_run.drain(
                client, broker, units_per_second=parse_rate(rate), undo=undo
            )
            done = None
            if not undo and not no_wait:
                with shown_progress(f"draining {broker}", is_shown=not json_output) as show:
                    done = await evacuation_run.follow_drain(
                        client, answer.broker.session_id, show, timeout_ms=timeout_ms
                    )
        if json_output:
            moved = {} if done is None else {"units": done.total, "seconds": done.seconds}
            print_json({**as_dict(answer.broker), **moved})
        elif undo:
            print_line(f"{broker} keeps what it has and may be given more")
        elif done is None:
            print_line(f"{broker} is being emptied")
        else:
            print_line(
                f"{broker} is empty: {counted(done.total, 'unit')} left it "
                f"in {done.seconds:,.1f} s",
            )

    run_command(work())
