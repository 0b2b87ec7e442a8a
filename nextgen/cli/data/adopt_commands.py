"""``adopt``: namespaces of a stock Pulsar cluster to placement by topic, and back."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import (
    counted,
    plain_console,
    print_json,
    print_line,
    print_table,
)
from nextgen.cli.data.pulsar_access import (
    CaFile,
    CertFile,
    KeyFile,
    PulsarAdmin,
    Token,
    TokenFile,
    access_to,
)
from nextgen.kernel.input.printable import printable
from nextgen.kernel.routing.names import NamespaceName, parse_namespace
from nextgen.runtime.lifecycle.exit_code import ExitCode, print_error

if TYPE_CHECKING:
    from nextgen.client.client import Client
    from nextgen.migration.admin_rest import AdminAccess
    from nextgen.migration.adoption.adoption import Adoption, OnProgress, Progress
    from nextgen.migration.adoption.plan import Facts, OwnNamespace, Plan
    from nextgen.migration.adoption.stock_brokers import StockBrokers
    from nextgen.migration.adoption.stock_cluster import StockCluster
    from nextgen.migration.importer import ImportReport

ANSWER_TIMEOUT_MS = 60_000
"""Time-out of one request to this cluster: some hundred topics move in a second."""

RATE_DEFAULT = 200
RATE_MAX = 5_000
"""More than a second's moves of any cluster so far."""

PROGRESS_LINE_S = 1.0
"""Interval of the lines of ``--json``."""

HINDRANCES_SHOWN_MAX = 20
REMARKS_SHOWN_MAX = 20

app = typer.Typer(
    help="Namespaces of a stock Pulsar cluster to placement by topic, and back, while clients use "
    "them. Both ways may be ended at any moment and run again.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="tenant/namespace")]
Rate = Annotated[
    int,
    typer.Option(
        "--rate",
        min=1,
        max=RATE_MAX,
        help="Topics a second that change their broker, whose clients notice it.",
    ),
]


def register(parent: typer.Typer) -> None:
    """Add the group of commands."""
    parent.add_typer(app, name="adopt")


@app.command("plan")
def plan(
    name: Name,
    pulsar_admin: PulsarAdmin,
    token: Token = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Say what 'adopt run' would create, what hinders it, and how long it takes. Changes nothing.

    The exit code is 1 if something hinders it.
    """
    namespace = parsed(name)
    access = access_to(pulsar_admin, token, token_file, ca_file, cert_file, key_file)
    sides = _sides(namespace, pulsar_admin, access, target, data_dir)

    async def work() -> Plan:
        from nextgen.migration.adoption.plan import make_plan

        async with sides() as opened:
            return make_plan(await opened.survey())

    made = run_command(work())
    if json_output:
        print_json(made.as_dict())
    else:
        _print_plan(made)
    if made.hindrances:
        raise typer.Exit(ExitCode.REFUSED)


@app.command("run")
def run(
    name: Name,
    pulsar_admin: PulsarAdmin,
    token: Token = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    rate: Rate = RATE_DEFAULT,
    untried: Annotated[
        bool,
        typer.Option("--untried", help="Go on in spite of what 'adopt plan' calls untried."),
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Hand a namespace over: from then on each of its topics is placed by itself.

    Its topics come into the inventory; those that are open stay where they are. Run it again for
    topics that were created in Pulsar since. Refused: nothing has changed for clients.
    """
    namespace = parsed(name)
    access = access_to(pulsar_admin, token, token_file, ca_file, cert_file, key_file)
    sides = _sides(namespace, pulsar_admin, access, target, data_dir)

    async def work() -> dict[str, Any] | None:
        from nextgen.migration.adoption.plan import make_plan
        from nextgen.migration.importer import Importer

        began = time.monotonic()
        async with sides() as opened:
            facts = await opened.survey()
            blockers = make_plan(facts).blockers(allow_untried=untried)
            if blockers:
                for each in blockers[:HINDRANCES_SHOWN_MAX]:
                    print_error(f"{namespace.text}: {each.sentence}")
                return None
            with _shown(json_output=json_output) as show:
                opened.stock.left_out = facts.here.topics
                report = await Importer(opened.client, _imported(show)).run(opened.stock)
                _check(report)
                handed = await opened.adoption(facts, rate, show).hand_over()
                # Topics that were created since they were listed.
                opened.stock.left_out = (await opened.here()).topics
                again = await Importer(opened.client).run(opened.stock)
                _check(again)
        return {
            "namespace": namespace.text,
            "placement": "topic",
            "created": _created(report) + _created(again),
            **asdict(handed),
            "different": report.differences.first[:REMARKS_SHOWN_MAX],
            "not_carried": report.not_carried.first[:REMARKS_SHOWN_MAX],
            "seconds": round(time.monotonic() - began, 3),
        }

    done = run_command(work())
    if done is None:
        raise typer.Exit(ExitCode.REFUSED)
    if json_output:
        print_json(done)
    else:
        _print_run(done)


@app.command("undo")
def undo(
    name: Name,
    pulsar_admin: PulsarAdmin,
    token: Token = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    rate: Rate = RATE_DEFAULT,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Delete the namespace and its topics here. Default: they stay, with what was set "
            "for them, for the next 'adopt run'.",
        ),
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Hand a namespace back: from then on Pulsar places it by bundles.

    Messages and subscriptions have always been in Pulsar. Clients whose service URL is discovery's
    have to be given a broker's of Pulsar before.
    """
    namespace = parsed(name)
    access = access_to(pulsar_admin, token, token_file, ca_file, cert_file, key_file)
    sides = _sides(namespace, pulsar_admin, access, target, data_dir)

    async def work() -> dict[str, Any]:
        began = time.monotonic()
        async with sides() as opened:
            facts = await opened.survey()
            with _shown(json_output=json_output) as show:
                handed = await opened.adoption(facts, rate, show).hand_back()
                forgotten = await opened.forget(show) if forget else 0
        return {
            "namespace": namespace.text,
            "placement": "bundle",
            **asdict(handed),
            "forgotten": forgotten,
            "seconds": round(time.monotonic() - began, 3),
        }

    done = run_command(work())
    if json_output:
        print_json(done)
        return
    print_line(
        f"{namespace.text} is placed by bundles: {done['kept']:,} open topics stayed where they "
        f"were, {done['moved']:,} changed their broker, {done['released']:,} assignments were "
        f"given up, in {done['seconds']:,.1f} s"
    )
    if done["assigned_again"]:
        print_line(
            f"{counted(done['assigned_again'], 'topic')} were assigned again: clients look them up "
            "through discovery, and are refused at the brokers"
        )
    if forget:
        print_line(f"{counted(done['forgotten'], 'topic')} deleted here")


def parsed(name: str) -> NamespaceName:
    """Return the namespace of the command line; what cannot be one ends the command."""
    parsed_name: list[NamespaceName] = []

    async def parse() -> None:
        parsed_name.append(parse_namespace(name))

    run_command(parse())
    return parsed_name[0]


@dataclass(frozen=True, slots=True)
class _Sides:
    """This cluster, Pulsar and its brokers, opened."""

    namespace: NamespaceName
    client: Client
    stock: StockCluster
    brokers: StockBrokers

    async def survey(self) -> Facts:
        from nextgen.migration.adoption.survey import survey

        return await survey(self.namespace, self.client, self.stock, self.brokers)

    async def here(self) -> OwnNamespace:
        from nextgen.migration.adoption.own_side import OwnSide

        return await OwnSide(self.client).namespace(self.namespace)

    def adoption(self, facts: Facts, rate: int, on_progress: OnProgress) -> Adoption:
        from nextgen.migration.adoption.adoption import Adoption
        from nextgen.migration.adoption.own_side import OwnSide
        from nextgen.migration.adoption.pace import Pace

        return Adoption(
            self.namespace.text,
            {each.broker_id: each.broker for each in facts.stock_brokers},
            placement=self.stock,
            at_brokers=self.brokers,
            cluster=OwnSide(self.client),
            pace=Pace(rate),
            on_progress=on_progress,
        )

    async def forget(self, on_progress: OnProgress) -> int:
        from nextgen.migration.adoption.adoption import Progress
        from nextgen.migration.adoption.own_side import OwnSide

        on_progress(Progress("forgetting", 0, 0))
        return await OwnSide(self.client).forget(self.namespace)


def _sides(
    namespace: NamespaceName,
    pulsar_admin: str,
    access: Callable[[], AdminAccess],
    target: str | None,
    data_dir: Path | None,
) -> Callable[[], Any]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[_Sides]:
        from nextgen.client.client import Client
        from nextgen.migration.adoption.stock_brokers import StockBrokers
        from nextgen.migration.adoption.stock_cluster import StockCluster

        endpoints = endpoints_of(target, data_dir)
        let_in = access()
        async with Client(endpoints, timeout_ms=ANSWER_TIMEOUT_MS) as client:
            brokers = StockBrokers((await client.cluster()).brokers)
            stock = StockCluster(pulsar_admin, namespace, access=let_in)
            try:
                yield _Sides(namespace, client, stock, brokers)
            finally:
                await stock.close()
                await brokers.close()

    return opened


def _print_plan(made: Plan) -> None:
    topics = len(made.creates_topics)
    partitions = sum(made.creates_topics.values())
    rows: list[tuple[str, object]] = [
        ("placement", "by topic already" if made.is_adopted else "by bundle"),
        ("tenant", "to be created here" if made.creates_tenant else "is here"),
        ("namespace", "to be created here" if made.creates_namespace else "is here"),
        ("topics to be created here", f"{topics:,}, with {partitions:,} partitions"),
        ("topics that are here", made.present_topics),
        ("open topics, which stay where they are", made.open_topics),
        ("takes about", f"{made.seconds:,.1f} s"),
    ]
    print_table(made.namespace, ("", ""), rows)
    print_table(
        "stock brokers with a session",
        ("broker", "in Pulsar", "open topics", "capacity"),
        [
            (each.broker_id, each.broker, each.open_topics, each.capacity_units)
            for each in made.brokers
        ],
    )
    for each in made.hindrances[:HINDRANCES_SHOWN_MAX]:
        kind = "untried" if each.is_untried else "hinders"
        print_line(f"{kind}: {each.sentence}")
    if (more := len(made.hindrances) - HINDRANCES_SHOWN_MAX) > 0:
        print_line(f"{more:,} more, see --json")
    for remark in made.remarks[:REMARKS_SHOWN_MAX]:
        print_line(f"note: {remark}")
    if (more := len(made.remarks) - REMARKS_SHOWN_MAX) > 0:
        print_line(f"{more:,} more notes, see --json")
    if not made.hindrances:
        print_line("nothing hinders it")


def _print_run(done: dict[str, Any]) -> None:
    print_line(
        f"{done['namespace']} is placed by topic: {counted(done['created'], 'topic')} created "
        f"here, {done['kept']:,} open ones stayed where they were, {done['moved']:,} changed their "
        f"broker, in {done['seconds']:,.1f} s"
    )
    for remark in done["different"]:
        print_line(f"different here, left as it is: {remark}")
    for remark in done["not_carried"]:
        print_line(f"not carried: {remark}")


@contextmanager
def _shown(*, json_output: bool) -> Iterator[OnProgress]:
    """Yield a function that shows progress: a line on a terminal's stderr, or lines of JSON."""
    if json_output:
        yield _json_lines()
        return
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with plain_console(stderr=True).status("") as status:

        def show(progress: Progress) -> None:
            counts = f": {progress.done:,} of {progress.total:,} topics" if progress.total else ""
            status.update(f"{printable(progress.step)}{counts}")

        yield show


def _json_lines() -> OnProgress:
    """Return a function that prints each step, and how far it is once a second."""
    last: list[Any] = ["", 0.0]

    def show(progress: Progress) -> None:
        now = time.monotonic()
        if progress.step == last[0] and now - last[1] < PROGRESS_LINE_S:
            return
        last[:] = [progress.step, now]
        print_json(asdict(progress))

    return show


def _imported(show: OnProgress) -> Callable[[ImportReport], None]:
    def on_imported(report: ImportReport) -> None:
        from nextgen.kernel.governance.policies import PolicyLevel
        from nextgen.migration.adoption.adoption import Progress

        read = report.levels[PolicyLevel.TOPIC].read
        show(Progress("importing", read, read))

    return on_imported


def _created(report: ImportReport) -> int:
    from nextgen.kernel.governance.policies import PolicyLevel

    return report.levels[PolicyLevel.TOPIC].created


def _check(report: ImportReport) -> None:
    """Raise ``Refused`` if an object could not be created here."""
    from nextgen.kernel.errors import Refused
    from nextgen.kernel.events.decider import RejectionCode

    if report.refusals.count:
        raise Refused(
            RejectionCode.NOT_ALLOWED,
            f"{report.refusals.count} objects cannot be created here: {report.refusals.first[0]}",
        )
