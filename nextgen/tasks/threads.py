"""Threads whose failure ends the process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from nextgen.tasks.background import report


def start_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """Run ``work`` in a daemon thread; if it raises, this process ends at once, with code 70.

    For threads that others wait for without checking that they live. It is a daemon thread, so a
    process that ends does not wait for it.
    """

    def run() -> None:
        try:
            work()
        except BaseException as error:
            report(name, error)
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(os.EX_SOFTWARE)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
