"""Which dispatcher each kind of subscription has."""

from __future__ import annotations

from collections.abc import Callable

from brokers.domain.subscriptions.cursor import Cursor
from brokers.domain.subscriptions.kind import SubscriptionKind
from brokers.service.subscriptions.dispatch.dispatcher import Dispatcher
from brokers.service.subscriptions.dispatch.key_shared import KeySharedDispatcher
from brokers.service.subscriptions.dispatch.shared import SharedDispatcher
from brokers.service.subscriptions.dispatch.single import SingleActiveDispatcher
from brokers.service.subscriptions.reader import EntrySource


def new_dispatcher(
    kind: SubscriptionKind,
    partition: int,
    cursor: Cursor,
    source: EntrySource,
    clock: Callable[[], int],
) -> Dispatcher:
    """Return a dispatcher that begins at the cursor.

    ``partition`` is the topic's number among the partitions of a partitioned one, else -1.
    """
    match kind:
        case SubscriptionKind.SHARED:
            return SharedDispatcher(cursor, source, clock)
        case SubscriptionKind.KEY_SHARED:
            return KeySharedDispatcher(cursor, source, clock)
        case _:
            return SingleActiveDispatcher(kind, partition, cursor, source)
