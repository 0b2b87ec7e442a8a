"""The site of a chaos run: a cluster, the addresses for its clients, and the maker of faults."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from nextgen.harness.chaos.runner import Maker
from nextgen.harness.chaos.schedule import FaultKind, Group


class FaultMaking(Maker, Protocol):
    """A maker of faults that can undo all of them."""

    async def undo_all(self) -> None:
        """Undo all faults that may still be in effect; harmless if there are none."""


class Site(Protocol):
    """A cluster that runs while the site is entered."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Addresses of discovery nodes: host:port."""

    @property
    def service_url(self) -> str:
        """The service URL for Pulsar clients, "" if it is not known."""

    @property
    def name(self) -> str:
        """The name of an operator's cluster, "" for one that the run started."""

    @property
    def kinds(self) -> Sequence[FaultKind]:
        """The kinds of faults that can be made here."""

    @property
    def unavailable(self) -> Mapping[FaultKind, str]:
        """The kinds of faults that cannot be made here, with reasons."""

    @property
    def places(self) -> Mapping[FaultKind, Collection[Group]]:
        """The groups of kinds that are not possible for all groups."""

    @property
    def sizes(self) -> Mapping[Group, int]:
        """Number of processes by group."""

    @property
    def maker(self) -> FaultMaking:
        """The maker of the faults."""

    async def enter(self) -> None:
        """Return when the cluster is up.

        Raises:
            MetadataError: The cluster does not start, or does not answer.
        """

    def may_move(self, topics: Sequence[str]) -> None:
        """Set the load's own topics, which faults may move."""

    async def leave(self) -> None:
        """Undo ``enter``."""

    def put_away(self, *, keep: bool) -> None:
        """Keep or delete the cluster's data. Call it after ``leave``."""
