"""Limits of a discovery process: memory of absent names, turns of its callers."""

DISCOVERY_CACHE_AT_HAND_MAX = 50_000
"""Of the cached answers, those kept whole besides for the fastest reading, some 400 bytes each.
The others are put together as they are read, which takes a quarter of a microsecond."""

DISCOVERY_CACHE_SHARED_MAX = 16_384
"""Parts of answers that are stored once for all answers that have them: one for each broker session
of a shard and epoch. Answers with further ones are stored whole."""

ABSENT_NAMES_MAX = 100_000
"""Absent names that one discovery process remembers, some 500 bytes each. The oldest go first."""

ABSENT_ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of the answers about them: a name may have a kilobyte, and an answer holds it twice."""

ABSENT_NAME_MS_MAX = 60_000
"""How long a name is cached as absent. The watch ends an absence; this bounds how long a name that
nobody looks up any more takes room. A name that is looked up continuously costs its shard one
lookup in this time: 10,000 such names take 2 % of a core of discovery."""

ABSENT_SHARD_IDLE_MS = 2_000
"""How long a shard names creations soon (``ASSIGNMENT_CREATIONS_MS``) after the last use of one of
its absences. Behind it the next lookup of a remembered name goes to the shard."""

LEASES_UNUSED_MS = 10_000
"""How long the leases of a discovery process are renewed without a lookup there. Behind it they
rest: the next lookup of each shard goes to the shard, and wakes its lease."""

DISCOVERY_TURN_BYTES_MAX = 32 * 1024
"""Bytes that one connection has answered at a time, some 540 lookups in half a millisecond. The
remainder of a longer read waits behind the other connections."""

DISCOVERY_SHORT_READ_BYTES = 8 * 1024
"""Reads up to this, some 130 lookups, are answered at once, without a turn."""

DISCOVERY_TURN_MS = 1.0
"""Time of the event loop in one turn for all connections with longer reads together. The last one
may finish the part that it began."""

DISCOVERY_ROUNDS_BETWEEN_TURNS = 6
"""Iterations of the event loop for all other work before the waiting connections' next turn. A gRPC
call is accepted in two or three, one call after the other, and answered in five more."""

DISCOVERY_TURN_COMMANDS_MAX = 16
"""Commands of one connection that a turn begins without a cached answer: each costs thirty times a
cached lookup before its request to a shard."""

LOOKUP_TENANT_NAMES_WAITING_MAX = 25_000
"""Names of one tenant that wait for shards in one discovery process: half of all that may, so that
no tenant takes the others' room. Beyond it lookups of the tenant are refused."""

LOOKUP_TENANT_NAMES_SHARED_MAX = 64
"""A tenant with more pending names of a shard gets requests of its own: one request is answered
when its slowest name is."""

LOOKUP_BATCHES_RESERVED = 2
"""Requests to a shard that only tenants with fewer names may use, of
``LOOKUP_BATCHES_IN_FLIGHT_MAX``: a flood never has them all."""

LOOKUP_NAMES_RESERVED = 256
"""The same of ``LOOKUP_NAMES_IN_FLIGHT_MAX``."""

DISCOVERY_CONNECTION_CALLS_MAX = 16
"""Calls in flight on one gRPC connection to a discovery node, streams included; further calls wait
at the client. gRPC accepts the calls of all connections one after the other, at 1 to 2 ms of a busy
core, so every client waits for the calls in flight of the others. Beside a client that sends all it
can, a call took 120 ms with 64 and takes 30 ms with 16. The price: 10,000 first lookups at once
over one connection to each node are a quarter slower. The client library has a connection for each
stream."""
