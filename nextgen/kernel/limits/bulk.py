"""Limits of loading topics in bulk and of importing metadata, each with its unit and its reason."""

from __future__ import annotations

BULK_NAMES_MAX = 1_000
"""Names in one request, which becomes one record: deciding them keeps the leader's loop busy for
some 15 ms. With twice as many a load is no faster, and a create that comes meanwhile waits twice as
long (benchmarks/inventory/bulk_load.py)."""

BULK_NAMES_BYTES_MAX = 512 * 1024
"""UTF-8 bytes of the names in one request. With ids and framing an event has at most 90 bytes more
than its name, so that a record stays below half of ``RECORD_BYTES_MAX``. A scalable topic has two
events with its name, and a record of them stays below the whole."""

BULK_REQUESTS_MAX = 8
"""Requests that wait for their turn at one shard: two loaders with a few in flight each."""

BULK_RECORDS_AHEAD_MAX = 4
"""Records in bulk that a majority of views has not folded yet. It bounds how far bulk loads get
ahead of the views: ordinary commands must not be refused for ``VIEW_LAG_MS_MAX``."""

BULK_LOOK_MS = 5
"""Interval of checks of the views' progress."""

BULK_IN_FLIGHT_MAX = 3
"""Requests of a loader in flight to one shard: one is decided, one is on the network, one is in the
log."""

BULK_REQUEST_TIMEOUT_MS = 30_000
"""Time-out of one request, the wait for room and an election included."""

BACKUP_SHARDS_READ_MAX = 8
"""Shards that a backup reads at the same time: each has a page of a message in memory."""

BACKUP_TAIL_EVENTS_MAX = 1_000_000
"""Changes of one shard during a backup that are kept in memory, some 300 bytes each: a minute at
ten thousand a second."""

BACKUP_MANIFEST_BYTES_MAX = 16 * 1024 * 1024
"""A backup's manifest: some 500 bytes for each shard, and the quotas. A larger one is refused
before it is parsed."""

BACKUP_PIN_TTL_MS = 3_600_000
"""How long the log is kept for a backup, from its beginning on: as long it may be resumed."""

RESTORE_ITEMS_MAX = 1_000
"""Objects of a backup in one request, which becomes at most two records: as ``BULK_NAMES_MAX``."""

RESTORE_ITEMS_BYTES_MAX = 1024 * 1024
"""Bytes of the objects in one request: their events have less, so that a record stays below
``RECORD_BYTES_MAX``."""

RESTORE_LAYOUTS_BYTES = 64 * 1024
"""Bytes of layouts behind which a restore begins another request: a layout takes ten times as long
to decide as a topic of that size. A larger layout has a request of its own."""

METADATA_LINE_BYTES_MAX = 4 * 1024 * 1024
"""A line of a metadata file: properties and policies of one object have less, also of a namespace
with as many permissions as it may have. A larger one is
refused before it is parsed."""

SOURCE_ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""An answer of the Admin REST that is imported from. The names of a namespace come in one answer:
a million of them have some 60 MB."""

SOURCE_REQUESTS_MAX = 16
"""Requests in flight at the Admin REST that is imported from: it serves its clients meanwhile."""

IMPORT_BATCHES_MAX = 8
"""Requests of an import in flight that create topics, ``TOPICS_PER_CREATE_MAX`` in each: enough for
every shard to have one, and few enough that single creates of others come between."""

IMPORT_WRITES_MAX = 32
"""Other requests of an import in flight: a shard commits several in one entry of its log."""
