"""Who may produce on a topic at the same time, and the epoch that fences former producers.

    mode                   with others connected          alone
    ----------------------------------------------------------------------------
    Shared                 fine, unless one is exclusive  fine
    Exclusive              ProducerFenced                 exclusive, next epoch
    WaitForExclusive       waits its turn                 exclusive, next epoch
    ExclusiveWithFencing   ends all others                exclusive, next epoch

A producer that had the topic to itself comes back with the epoch it was given. If the topic's
epoch has moved on, somebody else has had it meanwhile: that producer is fenced for good.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum

from brokers.domain.refusal import Refusal, ServerError

TOPIC_EPOCH_GIVEN_MAX = 2**62
"""Beyond it no producer is believed that says which epoch it had: the next one has to fit."""


class AccessMode(IntEnum):
    """Numbers as in ``ProducerAccessMode`` of the Pulsar protocol."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


@dataclass(frozen=True, slots=True)
class Asking:
    """A producer that wants in. ``topic_epoch`` is the one it had, None if it never had any."""

    key: Hashable
    name: str
    mode: AccessMode
    topic_epoch: int | None


@dataclass(frozen=True, slots=True)
class Granted:
    """The producer has access. A new epoch must be durable BEFORE the client gets the answer."""

    asking: Asking
    topic_epoch: int | None
    is_new_epoch: bool
    ended: tuple[Hashable, ...] = ()
    """Keys of those that were connected or waiting and are not any more."""


@dataclass(frozen=True, slots=True)
class Left:
    """What came of a producer's leaving."""

    granted: Granted | None
    """Who waited and is in."""
    fenced: tuple[Hashable, ...] = ()
    """Keys of those that waited and have been overtaken by the topic's epoch."""


class ProducerAccess:
    """The connected and the waiting producers of one topic."""

    def __init__(self, topic_epoch: int | None) -> None:
        self.topic_epoch = topic_epoch
        self._connected: dict[Hashable, Asking] = {}
        self._exclusive: Asking | None = None
        self._waiting: dict[Hashable, Asking] = {}

    def __repr__(self) -> str:
        return (
            f"<ProducerAccess epoch={self.topic_epoch} connected={len(self._connected)} "
            f"exclusive={self._exclusive is not None} waiting={len(self._waiting)}>"
        )

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def ask(self, asking: Asking) -> Granted | None:
        """Let a producer in; None: it waits, and ``leave`` of another one will name it.

        Raises:
            Refusal: It may not produce here.
        """
        match asking.mode:
            case AccessMode.SHARED:
                return self._ask_shared(asking)
            case AccessMode.EXCLUSIVE:
                return self._ask_exclusive(asking)
            case AccessMode.WAIT_FOR_EXCLUSIVE:
                self._check_epoch(asking)
                if self._connected:
                    self._waiting[asking.key] = asking
                    return None
                return self._grant_exclusive(asking)
            case AccessMode.EXCLUSIVE_WITH_FENCING:
                self._check_epoch(asking)
                ended = (*self._connected, *self._waiting)
                self._connected.clear()
                self._waiting.clear()
                self._exclusive = None
                return self._grant_exclusive(asking, ended)

    def leave(self, key: Hashable) -> Left:
        """Let a producer go, connected or waiting, and let in the one whose turn it is."""
        self._waiting.pop(key, None)
        if self._connected.pop(key, None) is None:
            return Left(None)
        if self._exclusive is not None and self._exclusive.key == key:
            self._exclusive = None
        fenced: list[Hashable] = []
        while self._waiting and not self._connected:
            asking = self._waiting.pop(next(iter(self._waiting)))
            if not self._is_behind(asking):
                return Left(self._grant_exclusive(asking), tuple(fenced))
            fenced.append(asking.key)
        return Left(None, tuple(fenced))

    def _ask_shared(self, asking: Asking) -> Granted:
        if self._exclusive is not None or self._waiting:
            raise Refusal(ServerError.PRODUCER_BUSY, self._occupied())
        self._connected[asking.key] = asking
        return Granted(asking, self.topic_epoch, is_new_epoch=False)

    def _ask_exclusive(self, asking: Asking) -> Granted:
        if self._exclusive is not None or self._waiting:
            raise Refusal(ServerError.PRODUCER_FENCED, self._occupied())
        if self._connected:
            raise Refusal(ServerError.PRODUCER_FENCED, "the topic has shared producers")
        return self._grant_exclusive(asking)

    def _grant_exclusive(self, asking: Asking, ended: tuple[Hashable, ...] = ()) -> Granted:
        self._check_epoch(asking)
        epoch = asking.topic_epoch
        if epoch is None:
            epoch = 0 if self.topic_epoch is None else self.topic_epoch + 1
        is_new = epoch != self.topic_epoch
        self.topic_epoch = epoch
        self._exclusive = asking
        self._connected[asking.key] = asking
        return Granted(asking, epoch, is_new, ended)

    def _check_epoch(self, asking: Asking) -> None:
        if self._is_behind(asking):
            raise Refusal(
                ServerError.PRODUCER_FENCED,
                f"the topic's epoch is {self.topic_epoch}, the producer had {asking.topic_epoch}",
            )
        if (asking.topic_epoch or 0) > TOPIC_EPOCH_GIVEN_MAX:
            raise Refusal(
                ServerError.NOT_ALLOWED, f"no topic has come to the epoch {asking.topic_epoch}"
            )

    def _is_behind(self, asking: Asking) -> bool:
        if asking.topic_epoch is None or self.topic_epoch is None:
            return False
        return asking.topic_epoch < self.topic_epoch

    def _occupied(self) -> str:
        if self._exclusive is not None:
            return f"producer {self._exclusive.name} has the topic to itself"
        return "another producer waits to have the topic to itself"
