"""Bounds of the cluster secret and of the proofs that are made with it (ADR 0057)."""

from __future__ import annotations

CLUSTER_SECRET_BYTES_MIN = 16
"""Bytes of a cluster secret: 128 bits if they are random, out of reach of a search."""

CLUSTER_SECRET_BYTES_MAX = 4_096
"""Bytes of a cluster secret's file. A larger one is the wrong file: a log, a disk image."""

CHALLENGE_PERIOD_MS = 60_000
"""A server makes a new challenge after this long, by its monotonic clock, and accepts proofs for
the previous one too: longer than any handshake, and short enough to remember every proof of it."""

CHALLENGE_PROOFS_MAX = 16_384
"""Proofs that a server accepts for one challenge; then it makes the next one. It remembers each
proof (some 100 bytes) to accept none twice. Streams prove once, so a busy server gets a few in a
second."""

CHALLENGE_KEPT_MS = 30_000
"""A client requests a new challenge after this long: half of its period of validity."""
