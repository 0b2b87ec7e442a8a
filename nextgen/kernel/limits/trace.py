"""Limits of traces and metrics."""

from __future__ import annotations

TRACE_FLUSH_MS = 500
"""Interval of batches of a process with few spans."""

TRACE_STOP_MS_MAX = 1_500
"""A stopping process waits this long to send its last spans; if the collector hangs they are
lost."""

LATENCY_BUCKETS_MS = (1, 10, 100, 200, 1_000)
"""Bounds of latency histograms. The objectives of lookups and assignments are among them, so that
values within an objective are counted exactly."""

LOOP_LAG_INTERVAL_MS = 100
"""Interval of measurements of the event loop's lag. A measured lag is less than the stall by at
most this. Ten timers a second take a thousandth of a core, so an idle process has fewer."""

LOOP_LAG_IDLE_INTERVAL_MS = 500
"""The same in an idle process, where a stall keeps nobody waiting. One that is longer than this and
``LOOP_STALL_MS`` together is always noticed."""

LOOP_IDLE_PERCENT = 5
"""An event loop that used less of a core since its last measurement is idle."""

LOOP_STALL_MS = 250
"""A loop that is later than this has stalled, and an alert fires: two and a half times the cost of
one frame, and a fraction of the stall that ends a session or deposes a leader."""

METRIC_SERIES_PER_SHARD_MAX = 160
"""Time series of one replica of a shard on a process' page, buckets included. No other label of a
process grows: none depends on topics, tenants, clients or brokers."""

METRIC_SERIES_PER_PROCESS_MAX = 400
"""Time series of a process besides those of its shards: those of the language's runtime too."""
