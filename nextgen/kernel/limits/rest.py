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

TENANT_UNITS_CALLED_MAX = TOPIC_UNITS_CALLED_MAX
"""Units of one tenant that all its requests together call at a time: one request alone may have
them all, and some more take no more of the loop, of shards and of brokers than one does."""

UNITS_CALLED_MAX = 64
"""Units of all tenants that one process calls at a time; beyond it calls wait in turns of tenants.
A call costs each of three processes a millisecond: that many delay a lookup by some 0.05 s."""

UNITS_WAITING_MAX = 4_096
"""Calls to units that wait for their turn: those of 128 tenants. Some 2 KB each."""

UNIT_ANSWERS_BYTES = 2 * 1024 * 1024
"""Answers of units that one request holds until its client has read those before, and one more."""

REST_TENANT_REQUESTS_MAX = 64
"""Requests to the Admin REST about one tenant's objects that one process works on, streams
included; one more is refused, retryably. A client that went away does not end its request."""

REST_LONG_ANSWER_BYTES = 256 * 1024
"""An answer of many units is sent as it is made once it is longer: then a failure breaks the
connection, while shorter answers fail with a status."""

REST_JSON_TURN_MS = 3
"""Time for making long answers of all requests in one round of the loop."""

REST_JSON_ITEMS_PER_TURN = 200
"""Rows of a list in an answer that are made at once, some 3 ms."""

REST_SUBSCRIPTIONS_SUMMED_MAX = 10_000
"""Different subscriptions in the sum of a topic's partitions, some 3 KB each. Each partition has
``SUBSCRIPTIONS_PER_TOPIC_MAX`` at most; beyond it partitions can be read one by one."""

HELD_NAMESPACES_PAGE_MAX = 1_000
"""Namespaces in one answer of a broker about what it holds: names have up to 500 bytes."""

HELD_UNITS_PER_TURN = 2_000
"""Units of a broker that are looked through in one turn of its loop: about a millisecond."""

REST_MESSAGE_HEADERS_BYTES_MAX = 6 * 1024
"""Headers with a message's metadata, names included. Beyond it properties are left out: clients,
aiohttp and Java's among them, take headers of 8 KiB in all."""

REST_RENAME_MS = 50_000
"""A request that renames a namespace or tenant is answered with how far it is after so long: within
a minute, at which many a proxy gives up."""

REST_CHANGE_ATTEMPTS_MAX = 5
"""Attempts to change an object that other callers change at the same time."""

TOPIC_GRANTS_PER_REQUEST_MAX = 1_000
"""Grants to roles on topics, or revocations, in one request: each topic is an effective write, and
sixteen are made at a time."""
