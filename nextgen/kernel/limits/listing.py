"""Limits of listings: pages over all shards, streams of names, counts, topic lists by pattern."""

from __future__ import annotations

from nextgen.kernel.limits.cluster import TOPIC_LOCAL_NAME_BYTES_MAX

LIST_PREFIX_BYTES_MAX = TOPIC_LOCAL_NAME_BYTES_MAX
"""UTF-8 bytes of the prefix of a listing: no local name is longer."""

PAGE_TOKEN_CHARACTERS_MAX = 192 * 1024
"""A page token: the longest name, and the position of each of ``SHARDS_MAX`` shards."""

LIST_WALK_BYTES_MAX = 8 * 1024 * 1024
"""Items or names that one listing has read from all shards and not passed on yet. A shard's share
of it bounds the shard's answers; each has one item at least."""

NAME_IN_PAGE_BYTES_OVERHEAD = 6
"""What a name takes in a page of names besides itself: tag, length, number of partitions."""

NAMES_COUNTED_PER_SLICE = 50_000
"""Names counted between two looks whether anybody still waits for the number: some 5 ms of a worker
thread that holds no lock of the interpreter."""

NAME_COUNTS_MAX = 2
"""Counts of names under way in one replica: each has a thread and one of ``VIEW_READERS_MAX``."""

LISTINGS_STREAMED_MAX = 32
"""Listings streamed over HTTP by one node at a time, each with ``LIST_WALK_BYTES_MAX`` at most."""

LISTINGS_STREAMED_TENANT_MAX = LISTINGS_STREAMED_MAX // 2
"""Listings of one tenant among them: a slow reader keeps one open for as long as it likes."""

LISTING_STEP_MS_MAX = 30_000
"""Time-out of one step of a streamed listing, elections included: then the stream is cut off."""

# Topic lists by pattern ------------------------------------------------------------------------

SUBSCRIPTION_PATTERN_CHARACTERS = 50
"""Longest pattern that is evaluated here, unless configured: ``subscriptionPatternMaxLength`` of
Pulsar. It counts UTF-16 code units, as Java does."""

SUBSCRIPTION_PATTERN_CHARACTERS_MAX = 1_024
"""The highest that it may be configured to: as long as a topic's local name."""

PATTERN_PROGRAM_BYTES_MAX = 32 * 1024
"""Memory of one compiled pattern. Matching takes time in proportion to it, whatever the pattern:
the worst measured needs some 4 ms for the longest name, an ordinary one a thousandth of that."""

PATTERN_PREFIX_BYTES_MAX = 1024 * 1024
"""Memory in which the literal beginning of a pattern is searched, once: enough for the longest
pattern, in a millisecond. Without a beginning every topic of the namespace is matched."""

PATTERNS_COMPILED_MAX = 256
"""Compiled patterns that are kept for the next client with the same one."""

PATTERN_MATCHING_TURN_MS = 2.0
"""Time of the event loop for matching one client's pattern, before other work has its turn."""

TOPIC_LISTS_IN_FLIGHT_BYTES_MAX = 100 * 1024 * 1024
"""Bytes of lists of topics that one process has read and its clients have not: as in a stock broker
(``maxTopicListInFlightHeapMemSizeMB``)."""

TOPIC_LIST_FREE_BYTES = 64 * 1024
"""Answers with fewer bytes need no permit: as much as the kernel takes of them anyway."""

TOPIC_LISTS_WAIT_MS_MAX = 25_000
"""How long a list waits for these bytes, as in a stock broker; afterwards it is refused."""

TOPIC_LISTS_WAITING_MAX = 10_000
"""Lists that wait for these bytes, as in a stock broker; further ones are refused at once."""

TOPIC_WATCHERS_BYTES_MAX = 256 * 1024 * 1024
"""Memory for the watchers of topic lists in one process, without the lists. Beyond it further ones
are refused, and lookups of patterns are answered with another node."""

TOPIC_WATCHER_BYTES = 8 * 1024
"""What one watcher counts for: its task, its place at a list, and its longest pattern."""

TOPIC_WATCHER_REQUESTS_MAX = 16
"""Requests with one watcher id that wait for a list; further ones are refused."""

TOPIC_WATCH_RETRY_MS = 500
"""Pause before a list that cannot be watched any longer is watched anew for its watchers."""

# Topic lists that watchers share ----------------------------------------------------------------

TOPIC_LISTS_BYTES_MAX = 256 * 1024 * 1024
"""Memory of one process for watched and kept topic lists and their watchers. Five million names of
45 bytes, or 80,000 watchers. Beyond it further lists and watchers are refused; those that are
there go on, and grow with their namespaces up to ``TOPIC_LISTS_GROWN_BYTES_MAX``."""

TOPIC_LISTS_GROWN_BYTES_MAX = TOPIC_LISTS_BYTES_MAX // 4 * 5
"""What lists that were there may grow to with their namespaces, watchers that are behind included.
Beyond it lists end, first those without watchers and then the largest; their clients are refused
when they ask again."""

TOPIC_LIST_WATCHER_BYTES = 3 * 1024
"""What a watcher is charged for: its place, its task, its part of its connection."""

TOPIC_LIST_OVERHEAD_BYTES = 8 * 1024
"""What a list is charged for besides its names: its pattern, its part of a subscription."""

TOPIC_LIST_KEPT_MS = 600_000
"""A list without a watcher is kept this long behind its last use: ten polls of an old client."""

TOPIC_LIST_LOAD_MS_MAX = 25_000
"""Time-out of the first read of a list, elections included, as long as Pulsar retries it."""

TOPIC_LIST_PENDING_NAMES_MAX = 10_000
"""Names in changes that wait for one watcher; beyond it the watcher gets the net difference."""

TOPIC_LIST_CHANGE_NAMES_MAX = 1_000
"""Names in one change, beyond which the rest becomes the next one. A topic's partitions stay
together."""

FILTERED_LISTS_READ_MAX = 2
"""Lists of scalable topics by properties that one process reads from the shards at a time, as often
as there are different filters. Others wait, so that these are read in time."""

FILTERED_PAGE_TOPICS_MAX = 10_000
"""Topics that a shard looks at for one page of those with some properties, in a few milliseconds of
its event loop. The page may have no name and yet be followed by others."""

TOPIC_LIST_BACKLOG_EVENTS_MAX = 20_000
"""Events of a namespace that wait to be matched with its patterns; beyond it the namespace is read
again instead."""
