"""Limits of the Admin REST. Each has its unit and its reason."""

from __future__ import annotations

REST_BODY_BYTES_MAX = 64 * 1024
"""Body of a request to the Admin REST: all policies of a namespace, or properties, four times over.
Stored values have lower limits of their own."""

REST_SCHEMA_BODY_BYTES_MAX = 1024 * 1024
"""Body of a request with a schema: ``SCHEMA_BYTES_MAX`` as JSON inside of JSON, in which each quote
and each backslash is escaped, and those of a KEY_VALUE schema twice."""

REST_QUERY_PARAMETERS_MAX = 64
"""Parameters of one query: the call with most has a dozen."""

TOPIC_UNITS_CALLED_MAX = 32
"""Partitions of one topic that one request calls at a time, of up to ``PARTITIONS_PER_TOPIC_MAX``:
their brokers and shards serve others meanwhile."""

HELD_NAMESPACES_PAGE_MAX = 1_000
"""Namespaces in one answer of a broker about what it holds: names have up to 500 bytes."""

HELD_UNITS_PER_TURN = 2_000
"""Units of a broker that are looked through in one turn of its loop: about a millisecond."""

REST_MESSAGE_HEADERS_BYTES_MAX = 6 * 1024
"""Headers with a message's metadata, names included. Beyond it properties are left out: clients,
aiohttp and Java's among them, take headers of 8 KiB in all."""

REST_CHANGE_ATTEMPTS_MAX = 5
"""Attempts to change an object that other callers change at the same time."""
