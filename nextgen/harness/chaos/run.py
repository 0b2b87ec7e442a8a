"""One chaos run: a cluster, load, faults; then the cluster recovers, and its history is judged.

<run dir>/  schedule.json    the scheduled faults; `--schedule` replays it
            history/         operations, answers and faults: `nextgen.harness.history`
            export/          the log, as `nextgen export` writes it
            result.json      the JSON line
            logs/            of all processes   } on failure, with all data of the
            timeline.html                       } nodes
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from nextgen.cli.local.cluster_state import read_state, remove_state, write_state
from nextgen.cli.local.plan import ClusterSize, write_json
from nextgen.harness.chaos.faults.happened import Happened
from nextgen.harness.chaos.faults.hooks import Hooks
from nextgen.harness.chaos.gather import committed_positions
from nextgen.harness.chaos.judge import draw, judge, judge_cluster
from nextgen.harness.chaos.load import (
    JUDGING_MS,
    OPERATIONS_PER_SECOND_DEFAULT,
    ChaosLoad,
    LoadPlan,
    tenant_of_run,
)
from nextgen.harness.chaos.nodes.disks import MOUNTS, mounted_below, unmount
from nextgen.harness.chaos.operators_cluster import OperatorsCluster
from nextgen.harness.chaos.own_cluster import OwnCluster
from nextgen.harness.chaos.runner import ScheduleRunner
from nextgen.harness.chaos.schedule import (
    FaultKind,
    Group,
    Schedule,
    kinds_of_brokers,
    make_schedule,
)
from nextgen.harness.chaos.site import FaultMaking, Site
from nextgen.harness.chaos.summary import RunReport
from nextgen.harness.chaos.validity import invalid_because
from nextgen.harness.history.model import Fault, Run
from nextgen.harness.history.record_file import Recorder
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.input.json_fields import parse_json
from nextgen.kernel.limits.stream import LOG_READER_TTL_MS_MAX

SCHEDULE_FILE = "schedule.json"
TIMELINE_FILE = "timeline.html"
RESULT_FILE = "result.json"
KEPT = frozenset({SCHEDULE_FILE, RESULT_FILE, "history", "export"})
"""Files that are kept of a successful run."""

GREEN_RUNS_KEPT_MAX = 5
"""Successful runs that are kept. A person examines and removes failed ones."""

Notice = Callable[[str], None]


class Companion(Protocol):
    """Another user of the run's cluster, with names of its own."""

    async def beside(self, targets: Sequence[str]) -> None:
        """Called when the faults begin, and cancelled when they end."""

    async def afterwards(self, targets: Sequence[str], run_dir: Path) -> Sequence[str]:
        """Called after recovery and export, before the cluster is stopped.

        Returns complaints. A run with complaints has failed, and all its files are kept.

        Raises:
            MetadataError: It could not do its work; the run ends with this error.
        """


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """The parameters of a run. ``targets`` empty: start a cluster."""

    data_dir: Path
    minutes: float
    seed: int
    operations_per_second: int = OPERATIONS_PER_SECOND_DEFAULT
    schedule: Schedule | None = None
    size: ClusterSize = field(default_factory=ClusterSize)
    targets: tuple[str, ...] = ()
    service_url: str = ""
    hooks: Hooks | None = None
    is_exported: bool = True
    keep: bool = False
    only: frozenset[FaultKind] = frozenset()
    """The kinds of faults to make; empty: all."""
    allows_missing_faults: bool = False
    """Whether a run is valid although this machine cannot make some kinds of faults."""


class ChaosRun:
    """See the module."""

    def __init__(
        self, options: ChaosOptions, notice: Notice, companion: Companion | None = None
    ) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self.run_dir = (options.data_dir / "chaos" / f"{stamp}-seed{options.seed}").absolute()
        self.report = RunReport(options.seed, options.minutes)
        self._options = options
        self._notice = notice
        self._companion = companion
        self._began_ns = 0
        self._lasted_s = 0.0

    @property
    def replay_command(self) -> str:
        target = f"--target {','.join(self._options.targets)} " if self._options.targets else ""
        target += "".join(f"--only {kind} " for kind in sorted(self._options.only))
        return (
            f"nextgen chaos --seed {self._options.seed} --minutes {self._options.minutes:g} "
            f"{target}--schedule {self.run_dir / SCHEDULE_FILE}"
        )

    async def run(self) -> RunReport:
        """Execute the run and return its report, which includes broken promises.

        Raises:
            MetadataError: The cluster did not start, or did not answer.
        """
        history_dir = self.run_dir / "history"
        history_dir.mkdir(parents=True)
        unmount_abandoned(self.run_dir.parent)
        write_state(self.run_dir, {})
        site = self._site()
        try:
            try:
                await self._on(site, history_dir)
            finally:
                await site.leave()
                # The cluster has stopped, but its disks are still needed.
                write_state(self.run_dir, {})
            self._notice("judging")
            self.report.verdict = await judge(history_dir)
            self._validate(site)
            if not (self.report.is_ok and self.report.is_valid):
                await draw(history_dir, self.report.verdict, self.run_dir / TIMELINE_FILE)
        finally:
            remove_state(self.run_dir)
            site.put_away(
                keep=self._options.keep or not (self.report.is_ok and self.report.is_valid)
            )
        return self.report

    def tidy(self, result: Mapping[str, Any], kept: frozenset[str] = frozenset()) -> None:
        """Store the result; of a successful run, keep only ``KEPT`` and ``kept``.

        ``kept``: names of files that the companion left.
        """
        write_json(self.run_dir / RESULT_FILE, result)
        if self.report.is_ok and self.report.is_valid and not self._options.keep:
            keep_only(self.run_dir, KEPT | kept)
            remove_older(self.run_dir.parent)

    # ------------------------------------------------------------------------------------------

    def _site(self) -> Site:
        options = self._options
        if options.targets:
            return OperatorsCluster(
                options.targets, options.service_url, options.hooks or Hooks({})
            )
        return OwnCluster(options.size, self.run_dir, self._ended)

    async def _on(self, site: Site, history_dir: Path) -> None:
        options = self._options
        self._notice(f"the run's directory is {self.run_dir}")
        await site.enter()
        self.report.target = site.name
        self.report.unavailable = dict(site.unavailable)
        for kind, why in self._missing.items():
            self._notice(f"NO {kind} FAULTS: this machine cannot make them: {why}")
        schedule = self._schedule(site)
        (self.run_dir / SCHEDULE_FILE).write_text(schedule.to_json(), encoding="utf-8")
        plan = LoadPlan(
            site.targets,
            site.service_url,
            self.run_dir,
            tenant_of_run(options.seed),
            options.seed,
            options.operations_per_second,
            min(LOG_READER_TTL_MS_MAX, round(options.minutes * 60_000) + JUDGING_MS),
            await committed_positions(site.targets) if options.targets else {},
        )
        load = ChaosLoad(plan)
        try:
            try:
                async with self._accompanied(site):
                    await self._under_load(schedule, site, load, history_dir)
            finally:
                await site.maker.undo_all()
            await self._after_load(site.maker, load, plan)
            if self._companion is not None:
                self._notice("running the companion's check")
                self.report.complaints += await self._companion.afterwards(
                    site.targets, self.run_dir
                )
        finally:
            await load.stop()

    @asynccontextmanager
    async def _accompanied(self, site: Site) -> AsyncIterator[None]:
        if self._companion is None:
            yield
            return
        beside = asyncio.create_task(self._companion.beside(site.targets))
        try:
            yield
        finally:
            beside.cancel()
            ended = await asyncio.gather(beside, return_exceptions=True)
            if isinstance(ended[0], MetadataError):
                self.report.complaints.append(f"beside the load: {ended[0]}")

    def _schedule(self, site: Site) -> Schedule:
        options = self._options
        kinds = self._kinds(site)
        if options.schedule is None:
            return make_schedule(options.seed, options.minutes, kinds, site.sizes, site.places)
        given = options.schedule
        steps = tuple(step for step in given.steps if step.kind in set(kinds))
        return Schedule(given.seed, given.minutes, steps)

    async def _under_load(
        self, schedule: Schedule, site: Site, load: ChaosLoad, history_dir: Path
    ) -> None:
        self._began_ns = time.monotonic_ns()
        await load.prepare()
        site.may_move(load.movable_topics)
        await load.start()
        self._notice(f"under load; {len(schedule.steps)} faults to come")
        began_at = time.monotonic()
        with Recorder(history_dir / "faults.jsonl") as recorder:
            runner = ScheduleRunner(
                schedule, site.maker, lambda happened: self._happened(happened, recorder, load)
            )
            await runner.run()
        rest_s = self._options.minutes * 60 - (time.monotonic() - began_at)
        await asyncio.sleep(max(0.0, rest_s))
        self._lasted_s = time.monotonic() - began_at
        self.report.left_out = runner.left_out
        self.report.complaints += runner.complaints

    async def _after_load(self, maker: FaultMaking, load: ChaosLoad, plan: LoadPlan) -> None:
        self._notice("all faults are undone; waiting for pending requests")
        try:
            await maker.wait_well(Group.ALL)
        except MetadataError as error:
            self.report.complaints.append(f"the cluster did not get well: {error}")
        self.report.load = await load.finish()
        with Recorder(plan.history_dir / "run.jsonl") as recorder:
            recorder.write(
                Run(
                    run_id=self.run_dir.name,
                    began_ns=self._began_ns,
                    ended_ns=time.monotonic_ns(),
                    seed=self._options.seed,
                    scopes=plan.scopes,
                    replay=self.replay_command,
                    is_log_complete=not plan.since,
                )
            )
        is_exported = self._options.is_exported
        await judge_cluster(self.report, load, plan, self._notice, is_exported=is_exported)
        await load.let_go_of_logs()
        self.report.complaints += self.report.load.failures

    def _happened(self, happened: Happened, recorder: Recorder, load: ChaosLoad) -> None:
        step = happened.step
        if not happened.took_hold:
            self.report.not_held += 1
            self._notice(f"{step.kind} of {happened.target.node_id} had no effect")
            return
        fault = Fault(
            str(step.kind),
            happened.target.node_id,
            happened.began_ns,
            happened.ended_ns,
            happened.detail,
            happened.target.shards,
        )
        recorder.write(fault)
        self.report.faults.append(fault)
        if step.group is Group.BROKER:
            self.report.of_brokers[step.kind] += 1
        counts = load.counts
        self._notice(
            f"{step.kind} {happened.target.node_id} {happened.detail} "
            f"({counts['acked']:,} of {counts['asked']:,} operations acknowledged)"
        )

    def _ended(self, node_id: str, code: int) -> None:
        self.report.complaints.append(f"{node_id} ended by itself with code {code}")

    def _kinds(self, site: Site) -> list[FaultKind]:
        only = self._options.only
        return [kind for kind in site.kinds if not only or kind in only]

    @property
    def _missing(self) -> Mapping[FaultKind, str]:
        """Kinds of faults that a cluster started here cannot have, and why."""
        # An operator's cluster has the faults of the operator's file.
        missing = {} if self._options.targets else self.report.unavailable
        only = self._options.only
        return {kind: why for kind, why in missing.items() if not only or kind in only}

    def _validate(self, site: Site) -> None:
        verdict = self.report.verdict
        missing = {} if self._options.allows_missing_faults else self._missing
        self.report.invalid += invalid_because(
            missing=missing,
            minutes=self._options.minutes,
            lasted_s=self._lasted_s,
            operations=verdict.operations if verdict else 0,
            acked=verdict.acked if verdict else 0,
            observed=verdict.observations if verdict else 0,
            available=self._kinds(site),
            happened=Counter(FaultKind(fault.kind) for fault in self.report.faults),
            available_to_brokers=kinds_of_brokers(self._kinds(site), site.sizes, site.places),
            happened_to_brokers=self.report.of_brokers,
            renames=self.report.load.renames,
            layout_changes=self.report.layout_changes,
        )


def keep_only(run_dir: Path, names: frozenset[str]) -> None:
    """Remove all other files from a run's directory."""
    for path in run_dir.iterdir():
        if path.name not in names:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def remove_older(folder: Path, kept: int = GREEN_RUNS_KEPT_MAX) -> None:
    """Remove all successful runs but the latest."""
    for run_dir in sorted(filter(_went_well, folder.iterdir()))[:-kept]:
        shutil.rmtree(run_dir, ignore_errors=True)


def unmount_abandoned(folder: Path) -> None:
    """Unmount the disks of killed runs, which deletes their content."""
    for path in mounted_below(folder) if MOUNTS.exists() else ():
        if read_state(path.parent) is None:
            unmount(path)


def _went_well(run_dir: Path) -> bool:
    try:
        result = parse_json((run_dir / RESULT_FILE).read_text(encoding="utf-8"))
        return bool(result["ok"] and result["valid"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
