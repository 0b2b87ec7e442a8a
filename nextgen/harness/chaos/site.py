"""What a run of chaos happens to: a cluster, where its clients connect, and who breaks it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from nextgen.harness.chaos.runner import Maker
from nextgen.harness.chaos.schedule import FaultKind, Group


class FaultMaking(Maker, Protocol):
    """A maker of faults that can make sure that nothing stays broken."""

    async def undo_all(self) -> None:
        """Mend whatever may still be broken; harmless where nothing is."""


class Site(Protocol):
    """A cluster that is up while the site is entered."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Where discovery nodes listen: host:port."""

    @property
    def service_url(self) -> str:
        """What a Pulsar client is given, "" if that is not known."""

    @property
    def name(self) -> str:
        """The operator's cluster as it was named, "" for one of our own."""

    @property
    def kinds(self) -> Sequence[FaultKind]:
        """The kinds of faults that can be made here."""

    @property
    def unavailable(self) -> Mapping[FaultKind, str]:
        """Those that cannot, and why."""

    @property
    def places(self) -> Mapping[FaultKind, Collection[Group]]:
        """To which groups a kind can happen, where not to all."""

    @property
    def sizes(self) -> Mapping[Group, int]:
        """How many processes each group has."""

    @property
    def maker(self) -> FaultMaking:
        """Who makes them."""

    async def enter(self) -> None:
        """Return when the cluster is up.

        Raises:
            MetadataError: It does not come up, or does not answer.
        """

    def may_move(self, topics: Sequence[str]) -> None:
        """Say which topics are the load's own, for faults that move some."""

    async def leave(self) -> None:
        """End what ``enter`` began."""

    def put_away(self, *, keep: bool) -> None:
        """Keep what the cluster has on disk, or not. After ``leave``."""
