"""What a discovery process reports, when, and what it says again."""

from __future__ import annotations

import asyncio

from discovery.domain.lookup_windows import LookupTally
from discovery.service.lookups.meter import LookupMeter
from nextgen.kernel.governance.lookup_slo import LOOKUP_WINDOW_MS
from nextgen.kernel.limits.placement import LOOKUP_WINDOWS_KEPT_MAX
from nextgen.tasks.timeouts import timeout

START_MS = 1_763_800_000_000 // LOOKUP_WINDOW_MS * LOOKUP_WINDOW_MS


class MeterWorld:
    """A clock that a test sets, and a stream that may be broken."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.sent = []
        self.is_connected = True
        self.tally = LookupTally()
        self.meter = LookupMeter(
            self.tally, node_id="d1", number=2, send=self._send, unix_ms=lambda: self.now_ms
        )

    def _send(self, message):
        if self.is_connected:
            self.sent.append(message.window)
        return self.is_connected

    def minute(self, lookups=1, latency_ms=1.0):
        """Let a minute with lookups pass, as far as the meter can see."""
        self.tally.add(latency_ms, lookups=lookups)
        self.now_ms += LOOKUP_WINDOW_MS
        self.meter.start()


async def test_the_end_of_a_minute_is_reported_with_its_verdict():
    world = MeterWorld()
    world.minute(lookups=10)
    world.minute(lookups=3, latency_ms=1_500)

    good, bad = world.sent
    assert (good.node_id, good.process, good.began_at_ms) == (
        "d1",
        f"w2-{START_MS // 1000}",
        START_MS,
    )
    assert (good.lookups, good.is_bad, good.why_bad) == (10, False, "")
    assert (bad.lookups, bad.is_bad) == (3, True)
    assert bad.began_at_ms == START_MS + LOOKUP_WINDOW_MS
    assert (world.meter.good, world.meter.bad) == (1, 1)
    world.meter.stop()


async def test_the_timer_reports_by_itself():
    world = MeterWorld()
    world.now_ms = START_MS + LOOKUP_WINDOW_MS - 1
    world.meter.start()
    world.tally.at_once += 1
    world.now_ms += 1

    async with timeout(30):
        while not world.sent:
            await asyncio.sleep(0)

    assert world.sent[0].lookups == 1
    world.meter.stop()


async def test_messages_lost_with_a_connection_are_sent_again_in_order():
    world = MeterWorld()
    world.minute()
    world.is_connected = False
    world.minute()
    world.is_connected = True
    assert len(world.sent) == 1

    world.meter.connected()

    starts = [window.began_at_ms - START_MS for window in world.sent]
    assert starts == [0, 0, LOOKUP_WINDOW_MS]
    world.meter.stop()


async def test_only_so_many_minutes_are_kept():
    world = MeterWorld()
    world.is_connected = False
    for _ in range(LOOKUP_WINDOWS_KEPT_MAX + 1):
        world.minute()
    world.is_connected = True

    world.meter.connected()

    assert len(world.sent) == LOOKUP_WINDOWS_KEPT_MAX
    assert world.sent[0].began_at_ms == START_MS + LOOKUP_WINDOW_MS, "the oldest is given up"
    world.meter.stop()


async def test_a_process_that_stops_reports_the_minute_it_stops_in_once():
    world = MeterWorld()
    world.meter.start()
    world.tally.at_once += 4

    world.meter.stop()
    world.meter.stop()

    (window,) = world.sent
    assert (window.began_at_ms, window.lookups) == (START_MS, 4)
