"""Limits of the writes that a shard has under way and waiting. Each has its unit and its reason."""

from __future__ import annotations

WRITES_IN_FLIGHT_MAX = 2_048
"""Cost of the writes of a shard that are decided and not committed: two of the largest creates, or
256 single ones, which at 8,000 a second commit within 32 ms. Beyond it writes wait by tenant."""

WRITES_SENT_MAX = 1_024
"""Cost of the creates that one discovery process has sent to one shard and that are not answered:
one of the largest, or 114 single ones, 11,000 a second at 10 ms each. Beyond it they wait by
tenant. Sent writes wait in one queue, in the order of sending."""

WRITE_REQUEST_COST = 8
"""Fixed cost of a request, in topics: it takes about as long as eight further topics in it."""

WRITES_WAITING_PER_TENANT_MAX = 1_024
"""Requests of one tenant that wait at a shard; beyond it ``Overloaded``. Three tenants at this
bound leave room for others among the requests of one stream (``EXCHANGE_IN_FLIGHT_MAX``)."""

WRITES_WAITING_MAX = 16_384
"""Requests of all tenants that wait at a shard; beyond it ``Overloaded``. Some 2 KB each."""

WRITE_READ_MS_MAX = 100
"""A write that reads its parents in other shards counts as in flight for at most this long: a home
shard that does not answer must not delay the writes of others. A read takes 5 ms."""

WRITE_RETRY_MS_MIN = 50
"""Least pause before a refused write is retried: some commits."""

WRITE_RETRY_MS_MAX = 1_000
"""Longest pause before a refused write is retried: the backlog of one tenant is written by then."""
