"""The streams by which a topic's shadows are fed, as the topic knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass
class ShadowFeed:
    """One shadow that a topic feeds. What is sent once for several of a broker counts for each."""

    shadow: str
    """Canonical name, without a partition."""
    broker_id: str
    connected_since_ms: int
    entries_out: int = 0
    bytes_out: int = 0


class Follower(Protocol):
    """One stream that feeds shadows of a topic. Its methods neither wait nor raise."""

    @property
    def feeds(self) -> Sequence[ShadowFeed]:
        """The shadows that it feeds at present."""
        ...

    def changed(self) -> None:
        """Look soon for what is new: entries, ledgers that were dropped, facts, policies."""
        ...

    def ended(self) -> None:
        """Note that the topic is closed here. Nothing follows."""
        ...


class Followers:
    """All followers of one topic."""

    def __init__(self) -> None:
        self._followers: list[Follower] = []
        self.facts_version = 0
        """Grows with each change of the facts that shadows have in common with the topic."""

    def __len__(self) -> int:
        return len(self._followers)

    @property
    def feeds(self) -> list[ShadowFeed]:
        """The shadows that are fed at present, by the brokers that serve them."""
        return [feed for follower in self._followers for feed in follower.feeds]

    def add(self, follower: Follower) -> None:
        """Have a follower called from now on."""
        self._followers.append(follower)

    def remove(self, follower: Follower) -> None:
        """Call a follower no more. May be repeated."""
        if follower in self._followers:
            self._followers.remove(follower)

    def changed(self) -> None:
        """Have all followers look for what is new."""
        for follower in self._followers:
            follower.changed()

    def facts_changed(self) -> None:
        """Have all followers send the facts again, which are durable."""
        self.facts_version += 1
        self.changed()

    def end(self) -> None:
        """Tell all followers that the topic is closed here."""
        followers, self._followers = self._followers, []
        for follower in followers:
            follower.ended()
