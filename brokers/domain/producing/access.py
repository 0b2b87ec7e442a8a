"""Which producers may share a topic, and the epoch that fences former exclusive producers.

    mode                   with others connected          alone
    ----------------------------------------------------------------------------
    Shared                 fine, unless one is exclusive  fine
    Exclusive              ProducerFenced                 exclusive, next epoch
    WaitForExclusive       waits its turn                 exclusive, next epoch
    ExclusiveWithFencing   ends all others                exclusive, next epoch

An exclusive producer reconnects with the epoch that it was given. If the topic's epoch is higher by
then, another producer had exclusive access meanwhile, and this one is fenced for good.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum

from brokers.domain.refusal import Refusal, ServerError

TOPIC_EPOCH_GIVEN_MAX = 2**62
"""Highest epoch that a producer may claim to have had: the next one must fit in 64 bits."""


class AccessMode(IntEnum):
    """Numbers as in ``ProducerAccessMode`` of the Pulsar protocol."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A producer that requests access. ``topic_epoch`` is its former epoch, None without one."""

    key: Hashable
    name: str
    mode: AccessMode
    topic_epoch: int | None


@dataclass(frozen=True, slots=True)
class Granted:
    """The producer has access. A new epoch must be durable BEFORE the client gets the answer."""

    request: AccessRequest
    topic_epoch: int | None
    is_new_epoch: bool
    ended: tuple[Hashable, ...] = ()
    """Keys of producers that this one fenced: they were connected or waiting."""


@dataclass(frozen=True, slots=True)
class Left:
    """The consequences of a producer's leaving."""

    granted: Granted | None
    """Waiting producers that have access now."""
    fenced: tuple[Hashable, ...] = ()
    """Keys of waiting producers that are fenced because the topic has a later epoch."""


class ProducerAccess:
    """The connected and the waiting producers of one topic."""

    def __init__(self, topic_epoch: int | None) -> None:
        self.topic_epoch = topic_epoch
        self._connected: dict[Hashable, AccessRequest] = {}
        self._exclusive: AccessRequest | None = None
        self._waiting: dict[Hashable, AccessRequest] = {}

    def __repr__(self) -> str:
        return (
            f"<ProducerAccess epoch={self.topic_epoch} connected={len(self._connected)} "
            f"exclusive={self._exclusive is not None} waiting={len(self._waiting)}>"
        )

    @property
    def waiting(self) -> int:
        """Number of waiting producers."""
        return len(self._waiting)

    def ask(self, request: AccessRequest) -> Granted | None:
        """Give a producer access. None: it waits, and the ``leave`` of another producer returns its
        key.

        Raises:
            Refusal: The producer may not have access.
        """
        match request.mode:
            case AccessMode.SHARED:
                return self._ask_shared(request)
            case AccessMode.EXCLUSIVE:
                return self._ask_exclusive(request)
            case AccessMode.WAIT_FOR_EXCLUSIVE:
                self._check_epoch(request)
                if self._connected:
                    self._waiting[request.key] = request
                    return None
                return self._grant_exclusive(request)
            case AccessMode.EXCLUSIVE_WITH_FENCING:
                self._check_epoch(request)
                ended = (*self._connected, *self._waiting)
                self._connected.clear()
                self._waiting.clear()
                self._exclusive = None
                return self._grant_exclusive(request, ended)

    def leave(self, key: Hashable) -> Left:
        """Remove a connected or waiting producer, and give access to the next waiting one."""
        self._waiting.pop(key, None)
        if self._connected.pop(key, None) is None:
            return Left(None)
        if self._exclusive is not None and self._exclusive.key == key:
            self._exclusive = None
        fenced: list[Hashable] = []
        while self._waiting and not self._connected:
            request = self._waiting.pop(next(iter(self._waiting)))
            if not self._is_behind(request):
                return Left(self._grant_exclusive(request), tuple(fenced))
            fenced.append(request.key)
        return Left(None, tuple(fenced))

    def _ask_shared(self, request: AccessRequest) -> Granted:
        if self._exclusive is not None or self._waiting:
            raise Refusal(ServerError.PRODUCER_BUSY, self._occupied())
        self._connected[request.key] = request
        return Granted(request, self.topic_epoch, is_new_epoch=False)

    def _ask_exclusive(self, request: AccessRequest) -> Granted:
        if self._exclusive is not None or self._waiting:
            raise Refusal(ServerError.PRODUCER_FENCED, self._occupied())
        if self._connected:
            raise Refusal(ServerError.PRODUCER_FENCED, "the topic has shared producers")
        return self._grant_exclusive(request)

    def _grant_exclusive(self, request: AccessRequest, ended: tuple[Hashable, ...] = ()) -> Granted:
        self._check_epoch(request)
        epoch = request.topic_epoch
        if epoch is None:
            epoch = 0 if self.topic_epoch is None else self.topic_epoch + 1
        is_new = epoch != self.topic_epoch
        self.topic_epoch = epoch
        self._exclusive = request
        self._connected[request.key] = request
        return Granted(request, epoch, is_new, ended)

    def _check_epoch(self, request: AccessRequest) -> None:
        if self._is_behind(request):
            raise Refusal(
                ServerError.PRODUCER_FENCED,
                f"the topic's epoch is {self.topic_epoch}, the producer had {request.topic_epoch}",
            )
        if (request.topic_epoch or 0) > TOPIC_EPOCH_GIVEN_MAX:
            raise Refusal(
                ServerError.NOT_ALLOWED, f"no topic can have the epoch {request.topic_epoch}"
            )

    def _is_behind(self, request: AccessRequest) -> bool:
        if request.topic_epoch is None or self.topic_epoch is None:
            return False
        return request.topic_epoch < self.topic_epoch

    def _occupied(self) -> str:
        if self._exclusive is not None:
            return f"producer {self._exclusive.name} has exclusive access to the topic"
        return "another producer waits for exclusive access to the topic"
