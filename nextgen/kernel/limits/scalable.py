"""Limits of scalable topics: segments, buckets, subscriptions and consumers of one topic."""

from __future__ import annotations

SEGMENTS_PER_TOPIC_MAX = 1_024
"""Segments of one scalable topic, sealed ones and those that an operation is making included.
A change rewrites the topic's row, and every watcher of the topic gets the whole list. With as many
subscriptions as there may be a change of the segments is one turn of the leader's event loop."""

BUCKETS_PER_SEGMENT_MAX = 1_024
"""Entry buckets of one segment: Pulsar's default for ``scalableTopicEntryBucketMaxPerSegment``."""

BUCKET_BUDGET = 4
"""Entry buckets that the segments of a new scalable topic share: Pulsar's default."""

SCALABLE_SUBSCRIPTIONS_MAX = 128
"""Subscriptions of one scalable topic: each may have a mark for each of its segments."""

SCALABLE_CONSUMERS_MAX = 1_024
"""Consumers registered with all subscriptions of one scalable topic: who has which segment is
decided anew with each change of the segments, in one record."""

SCALABLE_CONSUMER_NAME_BYTES_MAX = 255
"""UTF-8 bytes of a registered consumer's name, so that all of them fit into one record."""
