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

FED_ENTRY_BYTES_MAX = 64 * 1024
"""Payload of an entry that a source sends to its shadows. Larger ones are only announced: a shadow
reads them from the files, which costs a few milliseconds and no copy in the source's broker."""

FED_ENTRIES_MAX = 1_000
"""Entries that one change of a source has; with more, a shadow reads from the files. A stream's
next message, of several sources, begins no further change with as many. It is made without a pause
of the event loop: twice as many take some ten milliseconds."""

FED_BYTES_MAX = 1024 * 1024
"""Payload of the entries that one change has. Three of a stream's messages fit into its credit."""

FEED_CREDIT_BYTES = 4 * 1024 * 1024
"""Payload on its way to one broker by one stream. Beyond it the source sends positions alone, until
the broker has taken what it was sent: what waits for a slow broker is bounded by this."""

FEED_SOURCES_MAX = 50_000
"""Sources that one stream feeds: as many units as a broker serves. Each took two kilobytes at its
owner and four at the broker with the shadow."""

FEED_STREAMS_MAX = 8_192
"""Streams by which one broker feeds others: one for each, twice, because a broken one may be found
late."""

FEED_MESSAGE_BYTES = 512 * 1024
"""Size at which a message of a stream is sent. Its last part may exceed it, by ``FED_BYTES_MAX`` or
a fact; all stay well below a gRPC message."""

FEED_PAUSE_MS = 2
"""Pause of a stream after each message: what comes meanwhile is sent together. A message costs a
few hundred microseconds of processor time, whatever is in it. The first after a pause is sent at
once."""

FEED_ITEM_BYTES_MAX = 64 * 1024 * 1024
"""One update of a source, joined from all its parts: 100,000 ledgers and as many schemas as a topic
may have are a fifth. A stream that sends more is ended."""

FEED_REQUESTS_PER_MESSAGE_MAX = 1_000
"""Requests in one message of a stream: names of two topics each, some kilobytes at worst."""

FEED_REPORT_MS = 1_000
"""Interval at which a broker reports what its shadows have acknowledged, if that has changed.
Sources drop old entries every ``TOPIC_TRIM_MS``."""

FEED_LOCATE_MS_MIN = 20
"""First pause of a broker before it looks for a source again that could not be reached."""

FEED_LOCATE_MS_MAX = 500
"""Longest of these pauses, which double."""

FEED_ABSENT_MS_MAX = 10_000
"""The same for a source that does not exist, or does not feed shadows."""

FEED_SETTLED_MS = 1_000
"""A source that was fed for this long and then moves is looked for at once."""

FEED_LOCATES_AT_A_TIME = 64
"""Sources that a broker looks for at a time: when a broker dies its sources are many, and lookups
of clients come first."""
