"""A stream whose Python process starts late is begun again; one that is broken is not."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from pipelines.errors import JobRefused
from pipelines.stream.job import STARTS_MAX, Progress, follow


class Query:
    """One that ends as ``failure`` says."""

    lastProgress = None

    def __init__(self, failure: str | None) -> None:
        self._failure = failure
        self.is_stopped = False

    def awaitTermination(self, _: float) -> bool:
        if self._failure is not None:
            raise StreamingQueryException(self._failure)
        return True

    def stop(self) -> None:
        self.is_stopped = True


LATE = "[STREAM_FAILED] Python worker failed to connect back. SQLSTATE: XXKST"


def begun(*failures: str | None) -> tuple[Any, list[Query]]:
    left = iter(failures)
    queries: list[Query] = []

    def begin() -> Any:
        queries.append(Query(next(left)))
        return queries[-1]

    return begin, queries


def test_a_process_that_starts_late_is_asked_for_again() -> None:
    begin, queries = begun(LATE, LATE, None)

    follow(begin, Progress())

    assert len(queries) == 3
    assert all(query.is_stopped for query in queries)


def test_a_process_that_never_starts_is_a_refusal() -> None:
    begin, queries = begun(*[LATE] * STARTS_MAX)

    with pytest.raises(JobRefused, match="connect back"):
        follow(begin, Progress())
    assert len(queries) == STARTS_MAX


def test_what_is_broken_is_not_tried_again() -> None:
    begin, queries = begun("nextgen.export.errors.ExportRefused: it was made anew")

    with pytest.raises(JobRefused, match="cannot go on: it was made anew"):
        follow(begin, Progress())
    assert len(queries) == 1


def test_an_interrupt_ends_the_query_and_is_not_an_error() -> None:
    class Endless(Query):
        def awaitTermination(self, _: float) -> bool:
            os.kill(os.getpid(), signal.SIGINT)
            return False

    query = Endless(None)
    before = signal.getsignal(signal.SIGINT)
    typed: Any = query

    follow(lambda: typed, Progress())

    assert query.is_stopped
    assert signal.getsignal(signal.SIGINT) is before
