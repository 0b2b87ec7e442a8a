"""Limits of traces and metrics."""

from __future__ import annotations

TRACE_FLUSH_MS = 500
"""Between two batches of a process with few spans."""

TRACE_STOP_MS_MAX = 1_500
"""A stopping process waits this long to send its last spans; if the collector hangs they are
lost."""

LATENCY_BUCKETS_MS = (1, 10, 100, 200, 1_000)
"""Bounds of latency histograms. The objectives of lookups and assignments are among them, so that
what is within an objective is counted and not guessed."""

LOOP_LAG_INTERVAL_MS = 50
"""Between two measurements of the event loop's lag. A measured lag is less than the stall by at
most this. Twenty timers a second take a thousandth of a core."""

LOOP_STALL_MS = 250
"""A loop that is later than this has stalled, and an alert says so: two and a half times what one
frame may cost, and a fraction of what ends a session or deposes a leader."""

METRIC_SERIES_PER_SHARD_MAX = 160
"""Time series of one replica of a shard on a process' page, buckets included. A process has no
other label that grows: not by topics, tenants, clients or brokers."""

METRIC_SERIES_PER_PROCESS_MAX = 400
"""Time series of a process besides those of its shards: those of the language's runtime too."""
