"""A progress bar on stderr that shows Spark's tasks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LOOK_S = 0.5
"""Between two polls of Spark's status, which cost next to nothing."""


@contextmanager
def spark_progress(spark: SparkSession, what: str, *, is_shown: bool) -> Iterator[None]:
    """Show the running stages while the block lasts; nothing if stderr is no terminal."""
    if not is_shown or not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        watcher = threading.Thread(target=_watch, args=(spark, what, bar, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _watch(spark: SparkSession, what: str, bar: Progress, over: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    shown = bar.add_task(what, total=None)
    seen: dict[int, tuple[int, int]] = {}
    while not over.wait(LOOK_S):
        for stage_id in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                seen[stage_id] = (stage.numCompletedTasks, stage.numTasks)
        done = sum(completed for completed, _ in seen.values())
        total = sum(tasks for _, tasks in seen.values())
        bar.update(shown, completed=done, total=total or None)
