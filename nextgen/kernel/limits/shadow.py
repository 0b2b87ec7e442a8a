"""Limits of shadow topics. Each has its unit and its reason."""

from __future__ import annotations

from nextgen.kernel.limits.cluster import PAGE_BYTES_MAX, PROPERTIES_BYTES_MAX

SHADOWS_PER_TOPIC_MAX = 1_000
"""Shadows that one source feeds. Their names are a policy of the source, which its broker has in
memory: with some sixty bytes each they fill ``SOURCE_POLICIES_BYTES_MAX``."""

SOURCE_POLICIES_BYTES_MAX = 65_536
"""Policies of a topic that lists shadows, serialised. Others have ``POLICIES_BYTES_MAX``."""

SHADOWS_PER_READ = PAGE_BYTES_MAX // (PROPERTIES_BYTES_MAX + SOURCE_POLICIES_BYTES_MAX + 2_048)
"""Topics of a list that one request reads at their shard: as many of the largest size as fit into
an answer."""

SHADOW_LIST_BODY_BYTES_MAX = 1024 * 1024
"""Body of a request that sets a list over HTTP: ten times as many names as a list has, so that one
that is too long is refused with the number of its names."""

SHADOW_SOURCE_WAIT_MS = 2_000
"""How long the opening of a shadow waits for its source's owner; then it goes on with what the
files show. A source that is not open yet takes some 20 ms, and one that moves some 100 ms."""
