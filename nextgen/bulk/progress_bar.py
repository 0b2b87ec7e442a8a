"""A progress bar of a load on stderr, for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from nextgen.bulk.progress import Loaded, OnLoaded


@contextmanager
def load_progress(*, is_shown: bool) -> Iterator[OnLoaded]:
    """Yield a listener that draws the bar. It does nothing without a terminal or ``is_shown``."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _loaded: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("topics", total=None)

        def show(loaded: Loaded) -> None:
            bar.update(task, total=loaded.total("rows_total"), completed=loaded.total("rows"))

        yield show
