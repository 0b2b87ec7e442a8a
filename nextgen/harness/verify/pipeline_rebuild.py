"""``pipeline rebuild --verify`` without a cluster: one of its own, chaos on it, and the comparison.

    chaos: load and faults ──▶ healed, judged ──▶ still alive:
       and topics by the thousand besides            exported, read, rebuilt, compared

The comparison is the job's own, in a process of its own, as it is against any cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.options import DataDir, JsonFlag, data_dir_of
from nextgen.cli.console.output import print_json
from nextgen.client import Client
from nextgen.export.writing.run import run_export
from nextgen.export.writing.shard_files import FileLimits
from nextgen.harness.chaos.gather import committed_positions
from nextgen.harness.chaos.run import ChaosOptions, ChaosRun
from nextgen.harness.chaos.summary import as_json, print_summary
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Refused, Unavailable
from nextgen.kernel.governance.policies import NO_POLICIES, Policies, Retention
from nextgen.runtime.lifecycle.exit_code import CheckFailed, ExitCode, print_error
from nextgen.runtime.security.cluster_proof import environment_of_child
from nextgen.tasks.timeouts import timeout

EVENTS_MIN = 100_000
"""Least number of events: with fewer, a rule that one event in ten thousand breaks could go
unnoticed."""

MINUTES_DEFAULT = 3
RATE_DEFAULT = 80
TENANT = "rebuilt"
NAMESPACES = 8
BATCH_TOPICS = 250
LOOKED_UP_PER_BATCH = 25
CHANGED_PER_BATCH = 2
TOPICS_PER_SECOND_MAX = 1_000
"""Rate of topics during faults: more would leave no CPU of two cores for the judged load."""

CALL_TIMEOUT_MS = 30_000
EXPORTED_WITHIN_MS = 2_000
"""Age at which a file of the export is closed: the comparison waits for it."""

VERIFY_TIMEOUT_S = 1_800
SENTENCES_TOLD = 5
TABLES = "rebuilt"
"""Folder in the run's directory for tables and differences, without ``--out``."""

_SPACE_POLICIES = Policies(retention=Retention(time_ms=60_000, size_bytes=1_000_000))


def run_on_own_cluster(arguments: Sequence[str]) -> int:
    """Carry out ``rebuild`` with these arguments; return the exit code.

    Raises:
        click.UsageError: They are invalid.
    """
    app = typer.Typer(add_completion=False)
    app.command("rebuild")(_verify_under_chaos)
    code = app(list(arguments), prog_name="nextgen pipeline rebuild", standalone_mode=False)
    return int(code or 0)


def _verify_under_chaos(
    verify: Annotated[bool, typer.Option("--verify")] = True,
    minutes: Annotated[float, typer.Option("--minutes", min=1, help="Of chaos.")] = MINUTES_DEFAULT,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same, the same faults.")] = 1,
    rate: Annotated[
        int, typer.Option("--rate", min=1, help="Judged operations per second.")
    ] = RATE_DEFAULT,
    events_min: Annotated[
        int, typer.Option("--events-min", min=1, help="Fewer events prove too little.")
    ] = EVENTS_MIN,
    keep: Annotated[bool, typer.Option("--keep", help="Keep what the nodes had on disk.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the tables; default: of the run.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Also write a report to this HTML file.")
    ] = None,
    heap: Annotated[str, typer.Option("--heap", help="Memory of the driver's JVM.")] = "1g",
    master: Annotated[str, typer.Option("--master", help="Spark master.")] = "local[2]",
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Start a cluster, run chaos on it, and verify the rebuild of its whole history."""
    options = ChaosOptions(
        data_dir=data_dir_of(data_dir),
        minutes=minutes,
        seed=seed,
        operations_per_second=rate,
        keep=keep,
    )
    asked = Asked(minutes, events_min, out, report, heap, master, is_json=json_output)

    async def work() -> None:
        verification = Verification(asked)
        run = ChaosRun(options, print_error, verification)
        outcome = await run.run()
        chaos = as_json(outcome) | {"run_dir": str(run.run_dir), "replay": run.replay_command}
        run.tidy(chaos, frozenset({TABLES}))
        complaints = [*outcome.invalid, *outcome.complaints]
        if not outcome.is_ok and not complaints:
            complaints = ["chaos failed"]
        if json_output:
            result = verification.result | {"chaos": chaos}
            print_json(result | {"ok": not complaints, "complaints": complaints})
        else:
            print_summary(outcome)
        if complaints:
            raise CheckFailed("; ".join(complaints[:SENTENCES_TOLD]))

    run_command(work())


@dataclass(frozen=True, slots=True)
class Asked:
    """The parameters of a verification. ``out`` None: in the run's directory."""

    minutes: float
    events_min: int
    out: Path | None
    report: Path | None
    heap: str
    master: str
    is_json: bool
    """Whether the job's summary is returned as a JSON line; otherwise the job prints it itself."""


@dataclass(slots=True)
class Verification:
    """A chaos run's ``Companion``: fills the cluster meanwhile, and verifies it afterwards."""

    asked: Asked
    result: dict[str, Any] = field(default_factory=dict)
    """The job's JSON line, or ``ok`` alone if it printed its summary itself; and ``events``: how
    many the logs had."""

    _topics: int = 0
    _spaces: set[str] = field(default_factory=set)

    async def beside(self, targets: Sequence[str]) -> None:
        """Create, look up, change and delete topics at a steady rate until cancelled."""
        seconds = self.asked.minutes * 60
        # Most batches are as many events as topics, and a fifth.
        wanted = self.asked.events_min / seconds / 1.2
        interval_s = BATCH_TOPICS / min(TOPICS_PER_SECOND_MAX, max(1.0, wanted))
        loop = asyncio.get_running_loop()
        async with Client(targets, timeout_ms=CALL_TIMEOUT_MS) as client:
            while True:
                began = loop.time()
                # The run injects faults, so refused requests are repeated.
                with contextlib.suppress(MetadataError):
                    await self._fill(client)
                await asyncio.sleep(max(0.0, began + interval_s - loop.time()))

    async def afterwards(self, targets: Sequence[str], run_dir: Path) -> Sequence[str]:
        """Verify the recovered cluster; return the differences.

        Raises:
            MetadataError: It does not answer, or the job did not end.
        """
        events = await self._fill_up(targets)
        export = run_dir / "export"
        async with _exported_meanwhile(targets, export):
            out = self.asked.out or run_dir / TABLES
            self.result = await self._job(targets, export, out.absolute())
        self.result["events"] = max(events, int(self.result.get("rows_read", 0)))
        complaints: list[str] = []
        if self.result["events"] < self.asked.events_min:
            complaints.append(
                f"only {self.result['events']} events, {self.asked.events_min} are needed"
            )
        if not self.result.get("ok"):
            complaints.append("the rebuild is not what the cluster has")
            complaints += self.result.get("findings", [])[:SENTENCES_TOLD]
        return complaints

    async def _fill_up(self, targets: Sequence[str]) -> int:
        """Continue until there are enough events; return their number."""
        give_up_at = asyncio.get_running_loop().time() + VERIFY_TIMEOUT_S
        async with Client(targets, timeout_ms=CALL_TIMEOUT_MS) as client:
            while (events := sum((await committed_positions(targets)).values())) < (
                self.asked.events_min
            ):
                if asyncio.get_running_loop().time() > give_up_at:
                    break
                await self._fill(client)
        return events

    async def _fill(self, client: Client) -> None:
        """Write one batch. An attempt that fails is repeated under the same names."""
        space = f"{TENANT}/space-{self._topics // BATCH_TOPICS % NAMESPACES}"
        if space not in self._spaces:
            for create, name in ((client.create_tenant, TENANT), (client.create_namespace, space)):
                with contextlib.suppress(Refused):  # It exists.
                    await create(name)
            self._spaces.add(space)
        names = [
            f"persistent://{space}/topic-{self._topics + number:07d}"
            for number in range(BATCH_TOPICS)
        ]
        await client.create_topics(names)
        self._topics += BATCH_TOPICS
        await client.lookup(names[:LOOKED_UP_PER_BATCH])
        for number, name in enumerate(names[:CHANGED_PER_BATCH], start=1):
            await client.set_topic_properties(name, {"filled": "again"})
            await client.set_policies(name, Policies(message_ttl_ms=self._topics + number))
        await client.set_policies(
            space, _SPACE_POLICIES if self._topics // BATCH_TOPICS % 3 else NO_POLICIES
        )
        for name in names[CHANGED_PER_BATCH : 2 * CHANGED_PER_BATCH]:
            await client.delete_topic(name)

    async def _job(self, targets: Sequence[str], export: Path, out: Path) -> dict[str, Any]:
        command = [sys.executable, "-m", "pipelines", "rebuild", str(export), "--verify"]
        command += ["--target", ",".join(targets), "--out", str(out)]
        command += ["--heap", self.asked.heap, "--master", self.asked.master]
        if self.asked.report is not None:
            command += ["--report", str(self.asked.report.absolute())]
        stdout = None
        if self.asked.is_json:
            command.append("--json")
            stdout = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdout=stdout, env=environment_of_child(os.environ)
        )
        try:
            async with timeout(VERIFY_TIMEOUT_S):
                outcome, _ = await process.communicate()
        except TimeoutError:
            raise DeadlineExceeded(f"the job was not done in {VERIFY_TIMEOUT_S} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode not in (ExitCode.DONE, ExitCode.CHECK_FAILED):
            raise Unavailable(f"the job ended with code {process.returncode} and no result")
        if not self.asked.is_json:
            return {"ok": process.returncode == ExitCode.DONE}
        result = json.loads(outcome.decode("utf-8", "replace").strip().splitlines()[-1])
        assert isinstance(result, dict), "a job's summary is an object"
        return result


@asynccontextmanager
async def _exported_meanwhile(targets: Sequence[str], export: Path) -> AsyncIterator[None]:
    """Export the cluster's log, and follow it until the block ends."""
    stop = asyncio.Event()
    limits = FileLimits(age_ms=EXPORTED_WITHIN_MS)
    exporting = asyncio.create_task(
        run_export(targets, export, follow=True, stop=stop, limits=limits)
    )
    try:
        yield
    finally:
        stop.set()
        await exporting
