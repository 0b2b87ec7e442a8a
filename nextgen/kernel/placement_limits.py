"""Limits of placement, capacity, drains and policies. Each has its unit and its reason."""

from __future__ import annotations

POLICIES_BYTES_MAX = 16_384
"""Policies of one object, serialised: as much as its properties, and sent to brokers with it."""

PLACEMENT_NAMES_MAX = 64
"""Brokers, zones or racks that one placement rule names."""

REASSIGN_UNITS_PER_SECOND = 500
"""Units of lost brokers that the whole cluster assigns anew in a second, beside those that are
looked up: 10,000 units in 20 s. Each costs a commit's share, a delivery and an opening."""

DRAIN_UNITS_PER_SECOND = 100
"""Units that leave a draining broker in a second, over the whole cluster, unless it is said."""

DRAIN_UNITS_PER_SECOND_MAX = 10_000
"""More than this no shard moves in a second."""
