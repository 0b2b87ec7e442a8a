"""``rebalance``: spreads units evenly. Also has the parts that it shares with ``brokers drain``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import (
    as_dict,
    counted,
    plain_console,
    print_json,
    print_line,
    print_table,
)
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.input.printable import printable
from nextgen.kernel.limits.placement import DRAIN_UNITS_PER_SECOND, DRAIN_UNITS_PER_SECOND_MAX

if TYPE_CHECKING:
    from nextgen.cli.brokers.evacuation_run import OnProgress, Progress
    from protos.nextgen.v1.shard_service_pb2 import RebalanceResponse

WAIT_MS_DEFAULT = 3_600_000
"""An hour: 100,000 units at a few dozen a second."""

IDLE_SHOWN_SECONDS = 10
"""Seconds without a finished move after which the operator is notified: a move takes one."""

MOVES_SHOWN_MAX = 20
"""Moves of a plan in the table; ``--json`` has more."""

Rate = Annotated[
    str,
    typer.Option("--rate", metavar="N[/s]", help="Units a second, over the whole cluster."),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return when it is under way.")]
TimeoutMs = Annotated[
    int, typer.Option("--timeout-ms", min=1_000, help="How long to wait; it goes on after that.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("rebalance")(rebalance)


def parse_rate(given: str) -> int:
    """Return the units a second in ``100/s`` or ``100``.

    Raises:
        InvalidRequest: It is malformed, zero, or more than a shard ever moves.
    """
    digits = given.strip().removesuffix("/s")
    if not digits.isdecimal() or not 0 < int(digits) <= DRAIN_UNITS_PER_SECOND_MAX:
        raise InvalidRequest(f"a rate of {given!r}: give 1/s to {DRAIN_UNITS_PER_SECOND_MAX}/s")
    return int(digits)


@contextmanager
def shown_progress(what: str, *, is_shown: bool) -> Iterator[OnProgress]:
    """Yield a function that shows progress as a bar on stderr, or does nothing."""
    if not is_shown:
        yield lambda _progress: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=plain_console(stderr=True), transient=True) as bars:
        task = bars.add_task(printable(what), total=None)

        def show(progress: Progress) -> None:
            is_idle = progress.left and progress.idle_seconds >= IDLE_SHOWN_SECONDS
            more = f", none left for {progress.idle_seconds:.0f} s" if is_idle else ""
            bars.update(
                task,
                description=printable(f"{what}{more}"),
                total=progress.total,
                completed=progress.total - progress.left,
            )

        yield show


def rebalance(
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what would move. The default.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Move it.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Give up what is left to move.")] = False,
    rate: Rate = f"{DRAIN_UNITS_PER_SECOND}/s",
    no_wait: NoWait = False,
    timeout_ms: TimeoutMs = WAIT_MS_DEFAULT,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Bring every broker within a tenth of its share of units and traffic, with the fewest moves.

    Nothing is done while all are within a tenth. A unit that was moved stays for ten minutes.
    Units that leave a broker which is drained or lost are not waited for.
    """
    if plan + apply + stop > 1:
        raise typer.BadParameter("--plan, --apply and --stop exclude each other")

    async def work() -> None:
        from nextgen.cli.brokers.evacuation_run import follow_rebalance, rebalancing
        from nextgen.cli.brokers.evacuation_run import rebalance as ask
        from nextgen.cli.calls.discovery_client import DiscoveryClient
        from protos.nextgen.v1.shard_service_pb2 import RebalanceRequest

        request = RebalanceRequest(
            plan_only=not (apply or stop), stop=stop, units_per_second=parse_rate(rate)
        )
        async with DiscoveryClient(endpoints_of(target, data_dir)) as client:
            answer = await ask(client, request)
            done, left = None, None
            if apply and rebalancing(answer) and not no_wait:
                with shown_progress("moving", is_shown=not json_output) as show:
                    done = await follow_rebalance(client, show, timeout_ms=timeout_ms)
                # What was planned is not what was done: a move may have been refused.
                left = await ask(client, RebalanceRequest(plan_only=True))
        if json_output:
            seconds = None if done is None else done.seconds
            found = None if left is None else {"count": left.count, "reason": left.reason}
            print_json({**as_dict(answer), "seconds": seconds, "left": found})
        else:
            _print_plan(answer, done, left)

    run_command(work())


def _print_plan(
    answer: RebalanceResponse, done: Progress | None, left: RebalanceResponse | None
) -> None:
    """Print a plan; for one that was carried out, the brokers' state and the remaining moves."""
    from nextgen.cli.brokers.evacuation_run import rebalancing

    before = {(each.broker_id, each.session_id): each for each in answer.before}
    rows = [
        (
            each.broker_id,
            before[key].units if (key := (each.broker_id, each.session_id)) in before else 0,
            each.units,
            each.load_permille / 10,
        )
        for each in (answer.after if left is None else left.before)
    ]
    if rows:
        print_table("units", ("broker", "before", "after", "load %"), rows)
    shown = answer.moves[:MOVES_SHOWN_MAX]
    if shown:
        moves = [(move.name, move.from_broker_id, move.to_broker_id or "any") for move in shown]
        print_table("moves", ("unit", "from", "to"), moves)
    more = answer.count - len(shown)
    sentence = counted(answer.count, "move")
    if more:
        sentence += f", {more:,} of them not shown"
    if done is not None:
        sentence += f", over after {done.seconds:,.1f} s"
    elif rebalancing(answer):
        sentence += f", {rebalancing(answer):,} under way"
    if answer.evacuating:
        sentence += f", {answer.evacuating:,} units are leaving brokers that drain or are lost"
    if left is not None:
        sentence += f", {left.count:,} are left"
    reason = (answer if left is None else left).reason
    print_line(f"{sentence}: {reason}")
