"""Limits of shadow topics. Each has its unit and its reason."""

from __future__ import annotations

SHADOWS_PER_TOPIC_MAX = 1_000
"""Shadows that one source feeds. Their names are a policy of the source, which its broker has in
memory: with some sixty bytes each they fill ``POLICIES_BYTES_MAX``."""
