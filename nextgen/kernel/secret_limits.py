"""Bounds of the cluster secret and of the proofs that are made with it (ADR 0057)."""

from __future__ import annotations

CLUSTER_SECRET_BYTES_MIN = 16
"""Bytes of a cluster secret: 128 bits if they are random, out of reach of a search."""

CLUSTER_SECRET_BYTES_MAX = 4_096
"""Bytes of a cluster secret's file. A larger one is the wrong file: a log, a disk image."""
