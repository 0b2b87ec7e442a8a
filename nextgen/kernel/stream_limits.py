"""Limits of what reads the event log: readers, change streams, the exporter; see ``limits``."""

from __future__ import annotations

# Change streams --------------------------------------------------------------------------------

WATCHES_PER_STREAM_MAX = 20_000
"""Watches on one stream: a discovery node's own, and those of everybody who watches through it."""

WATCH_STREAMS_PER_SHARD_MAX = 5_000
"""Streams to one replica of a shard: every broker manager and discovery node, and programs."""

WATCH_NAMES_MAX = 10_000
"""Names in one watch; whoever wants more adds another watch."""

WATCH_BACKLOG_EVENTS_MAX = 4_096
"""Events that wait for one stream to take them; beyond it the stream catches up from the log."""

WATCH_EVENTS_PER_UPDATE_MAX = 1_000
"""Events or items in one update; bounded in bytes by ``EVENTS_BATCH_BYTES_MAX`` besides."""

WATCH_PROGRESS_MS = 500
"""Between two updates that only say how far the stream is."""

WATCH_STALLED_MS_MAX = 10_000
"""One update may wait so long for its stream's flow control; then the stream is ended."""
