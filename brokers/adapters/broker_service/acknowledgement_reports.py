"""``WatchAcknowledgements``: first all remembered intervals, then each one that grows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable

from brokers.domain.acknowledgements import Acknowledged, Acknowledgements, IntervalKey
from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.placement import (
    ACKNOWLEDGEMENT_INTERVALS_PER_REPORT_MAX,
    ACKNOWLEDGEMENT_REPORT_MS,
    ACKNOWLEDGEMENT_WATCHERS_MAX,
)
from protos.nextgen.v1.broker_service_pb2 import AcknowledgementInterval, AcknowledgementReport


class AcknowledgementReports:
    """Makes the reports of one broker. Without watchers it costs nothing."""

    def __init__(
        self,
        acknowledgements: Acknowledgements,
        *,
        broker_id: str,
        session_id: Callable[[], str],
        report_ms: int = ACKNOWLEDGEMENT_REPORT_MS,
    ) -> None:
        self._acknowledgements = acknowledgements
        self._broker_id = broker_id
        self._session_id = session_id
        self._report_ms = report_ms
        self._watchers = 0

    async def watch(self) -> AsyncGenerator[AcknowledgementReport]:
        """Yield reports for ever. An empty report says that no interval has changed.

        Raises:
            Overloaded: There are too many watchers already.
        """
        if self._watchers >= ACKNOWLEDGEMENT_WATCHERS_MAX:
            raise Overloaded(f"{self._watchers} auditors are watching, no more are allowed")
        self._watchers += 1
        try:
            reported: dict[IntervalKey, int] = {}
            while True:
                changed, reported = self._changed(reported)
                for start in range(0, len(changed), ACKNOWLEDGEMENT_INTERVALS_PER_REPORT_MAX):
                    some = changed[start : start + ACKNOWLEDGEMENT_INTERVALS_PER_REPORT_MAX]
                    yield self._report(some)
                if not changed:
                    yield self._report([])
                await asyncio.sleep(self._report_ms / 1_000)
        finally:
            self._watchers -= 1

    def _changed(
        self, reported: dict[IntervalKey, int]
    ) -> tuple[list[Acknowledged], dict[IntervalKey, int]]:
        """Return the intervals that differ from ``reported``, and the entries of every interval."""
        changed: list[Acknowledged] = []
        present: dict[IntervalKey, int] = {}
        for interval in self._acknowledgements:
            present[interval.key] = interval.entries
            if reported.get(interval.key) != interval.entries:
                changed.append(interval)
        return changed, present

    def _report(self, intervals: list[Acknowledged]) -> AcknowledgementReport:
        return AcknowledgementReport(
            broker_id=self._broker_id,
            session_id=self._session_id(),
            intervals=[_to_proto(interval) for interval in intervals],
            sent_at_ns=time.time_ns(),
        )


def _to_proto(interval: Acknowledged) -> AcknowledgementInterval:
    topic_id, unit, epoch = interval.key
    return AcknowledgementInterval(
        topic=interval.topic,
        topic_id=topic_id,
        unit=unit,
        epoch=epoch,
        first_acked_at_ns=interval.first_ns,
        last_acked_at_ns=interval.last_ns,
        acknowledged=interval.entries,
    )
