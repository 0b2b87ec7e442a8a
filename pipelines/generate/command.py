"""``nextgen pipeline generate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nextgen.kernel.errors import InvalidRequest
from nextgen.runtime.lifecycle.exit_code import ExitCode, print_error
from pipelines.generate.job import JOB, run
from pipelines.generate.world import World
from pipelines.running.options import (
    DEFAULT_HEAP,
    DEFAULT_MASTER,
    HeapOption,
    JsonFlag,
    MasterOption,
    run_job,
)

TOPICS_PER_PARTITION = 50_000
"""Events per shuffle partition, which one task sorts."""


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(JOB)
    def generate(
        out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the export.")],
        topics: Annotated[int, typer.Option("--topics", help="Topics ever created.")] = 10_000,
        days: Annotated[int, typer.Option("--days", help="Length of the history.")] = 7,
        seed: Annotated[int, typer.Option("--seed", help="The same seed, the same events.")] = 1,
        shards: Annotated[int, typer.Option("--shards")] = 4,
        brokers: Annotated[int, typer.Option("--brokers")] = 8,
        events_per_topic: Annotated[
            float, typer.Option("--events-per-topic", help="On the average; 5 is the least.")
        ] = 10.0,
        auto_scaled: Annotated[
            int,
            typer.Option(
                "--auto-scaled",
                metavar="PERCENT",
                help="Of topics: scalable ones, split and merged by their recorded loads.",
            ),
        ] = 0,
        master: MasterOption = DEFAULT_MASTER,
        heap: HeapOption = DEFAULT_HEAP,
        as_json: JsonFlag = False,
    ) -> None:
        """Write a realistic history as an export: tenants by Zipf, bursts, deaths, handovers."""
        try:
            world = World(topics, days, seed, shards, brokers, events_per_topic, auto_scaled)
        except InvalidRequest as error:
            print_error(str(error))
            raise typer.Exit(ExitCode.USAGE) from None
        tasks = max(8, topics // TOPICS_PER_PARTITION)
        run_job(
            JOB,
            lambda spark: run(spark, world, out),
            master=master,
            heap=heap,
            as_json=as_json,
            settings={"spark.sql.shuffle.partitions": str(tasks)},
        )
