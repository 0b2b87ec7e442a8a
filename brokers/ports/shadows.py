"""The ledgers of shadow topics, which show the entries of another topic."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from brokers.domain.position import Position
from brokers.ports.ledger import TopicLedger
from nextgen.kernel.routing.names import TopicName


class ShadowListener(Protocol):
    """What a shadow's topic learns of its source beside new entries. No method waits."""

    def before_trim(self, first: Position) -> None:
        """Handle that the entries in front of ``first`` are about to disappear."""
        ...

    def facts_changed(self) -> None:
        """Handle that the schema of the source, or its termination, has changed."""
        ...


class ShadowLedger(TopicLedger):
    """A ledger with the entries and schemas of a source, and with cursors of its own.

    Nothing can be appended. ``trim`` drops nothing: it reports which entries are not needed here.
    """

    @property
    @abstractmethod
    def source(self) -> TopicName:
        """The unit of the source."""

    @property
    @abstractmethod
    def away(self) -> str:
        """Why the source sends nothing at present; empty: it does."""

    @abstractmethod
    def listen(self, listener: ShadowListener) -> None:
        """Set the listener, once."""


class ShadowLedgers(Protocol):
    """Makes the ledgers of one broker's shadows."""

    async def open(self, own: TopicLedger, shadow: TopicName, source: TopicName) -> ShadowLedger:
        """Return the ledger of a shadow of ``source``; ``own`` has its claim and its cursors.

        If the source is away, the ledger shows what its files hold. If this fails, ``own`` is
        closed.

        Raises:
            StorageFailed: The files cannot be found: the source was never reached. Or the disk
                refused.
            LedgerDamaged: The files of the source are damaged.
        """
        ...
