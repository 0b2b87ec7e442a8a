"""How long a command may be repeated, and how long its first outcome is kept (ADR 0053)."""

from __future__ import annotations

COMMAND_REPEATED_MS_MAX = 60_000
"""The client library repeats a command for at most this long after the first attempt that may have
been executed. As long as the longest request: ``REQUEST_TIMEOUT_MAX_MS``."""

ISSUED_POSITIONS_FRESH_MS = 10_000
"""Highest age of a client's positions when it first sends a command with them: a writing client
makes one more request every ten seconds."""

OUTCOME_WINDOW_MS = 120_000
"""A leader keeps the outcome of a command for at least this long: an issued position may be 10 s
old at the first attempt, repetitions follow for 60 s, and the rest allows for the different clocks
of leader and client. It keeps it longer if fewer than ``OUTCOME_WINDOW_POSITIONS`` events
followed."""

OUTCOME_WINDOW_POSITIONS = 100_000
"""A command id is remembered at least until this many further events were applied in its shard. It
is the only rule of a log without orders to forget. Part of the fold: replicas with different
windows have different digests, so it changes with the format of the view only."""

OUTCOMES_MAX = 600_000
"""Outcomes remembered by one shard: 5,000 commands/s for ``OUTCOME_WINDOW_MS``, some 100 bytes
each. At the limit each new outcome replaces the oldest: the window gets shorter, and repetitions
behind it are refused. Part of the fold, as ``OUTCOME_WINDOW_POSITIONS``."""

OUTCOMES_WITHOUT_ORDERS_MAX = 200_000
"""The same in a log without orders to forget: earlier releases fold by this number."""

POSITION_FRESH_MS = 1_000
"""Highest age of a shard's position that a discovery node returns: one read per second and shard,
for any number of clients."""

POSITION_WAIT_MS = 300
"""A discovery node waits this long for silent shards, then returns the others' positions."""

POSITION_READ_TIMEOUT_MS = 2_000
"""Time-out of one read of a position, an election included."""
