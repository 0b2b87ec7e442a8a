"""The topics that a stock broker has open, by its reports, beside those that it should have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from brokers.domain.holding import Holding
from brokers.ports.plugin import PluginFault, PluginLost, TopicsReported
from brokers.ports.session import Clock
from nextgen.kernel.limits.stream import PLUGIN_OBEYS_MS, PLUGIN_OPEN_TOPICS_MAX
from nextgen.kernel.routing.names import InvalidName, parse_topic


@dataclass(frozen=True, slots=True)
class StockTopic:
    """One open topic, as the search for idle units sees it: see ``UsedTopic``."""

    has_clients: bool
    """Or messages that Pulsar is still to drop by their age."""
    since_ms: int
    is_usable: bool = True

    def idle_for_ms(self, now_ms: int) -> int:
        return 0 if self.has_clients else now_ms - self.since_ms


_UNKNOWN = StockTopic(has_clients=True, since_ms=0)
"""Any topic, until the plug-in has reported: nothing is idle because nobody has asked."""


class StockTopics:
    """The open topics of one stock broker that are placed one by one.

    ``holding`` returns what the present session has assigned. ``clock`` never goes back,
    ``wall_clock`` is Unix time, both in milliseconds.
    """

    def __init__(self, holding: Callable[[], Holding], clock: Clock, wall_clock: Clock) -> None:
        self._holding = holding
        self._clock = clock
        self._wall_clock = wall_clock
        self._open: dict[str, StockTopic] = {}
        self._is_known = False
        self._strays: dict[str, int] = {}
        """Open topics that are not assigned here, and since when that is so."""

    def __repr__(self) -> str:
        return f"<StockTopics open={len(self._open)} strays={len(self._strays)}>"

    def __len__(self) -> int:
        return len(self._open)

    def begin_anew(self) -> None:
        """Forget all: another plug-in, or the same one again, is going to report."""
        self._open.clear()
        self._strays.clear()
        self._is_known = False

    def take(self, report: TopicsReported) -> None:
        """Take over what has changed.

        Raises:
            PluginLost: There are more open topics than a broker can have.
        """
        if report.is_first:
            self.begin_anew()
        now_ms = self._clock()
        self._open.update(dict.fromkeys(report.used, StockTopic(True, now_ms)))
        self._open.update(dict.fromkeys(report.unused, StockTopic(False, now_ms)))
        for name in report.closed:
            self._open.pop(name, None)
        if len(self._open) > PLUGIN_OPEN_TOPICS_MAX:
            raise PluginLost(
                f"the plug-in reports more than {PLUGIN_OPEN_TOPICS_MAX} open topics",
                PluginFault.OVERSIZED,
            )
        self._is_known = self._is_known or report.is_last

    def get(self, name: str) -> StockTopic | None:
        """Return the open topic of an assigned unit, None if it is not open."""
        if not self._is_known:
            return _UNKNOWN
        names = (name, *self._former_names(name))
        return next((self._open[each] for each in names if each in self._open), None)

    def disobeyed(self) -> list[str]:
        """Return the topics that are open for ``PLUGIN_OBEYS_MS`` although they are not assigned
        here; each again after that time."""
        now_ms = self._clock()
        strays = {name: self._strays.get(name, now_ms) for name in self._unassigned()}
        overdue = [
            name for name, since_ms in strays.items() if now_ms - since_ms >= PLUGIN_OBEYS_MS
        ]
        self._strays = strays | dict.fromkeys(overdue, now_ms)
        return overdue

    def _unassigned(self) -> Iterator[str]:
        holding = self._holding()
        for name in self._open:
            if holding.assigned(name) is None and not self._has_former(holding, name):
                yield name

    def _former_names(self, name: str) -> Iterator[str]:
        """Yield the names that an assigned unit had before: the broker may have it open as one."""
        holding = self._holding()
        assigned = holding.assigned(name)
        topic = None if assigned is None else holding.topics.get(assigned.topic.topic_id)
        if topic is None or not topic.former_names:
            return
        partition = parse_topic(name).partition
        for former in topic.former_names:
            base = parse_topic(former.name)
            yield (base if partition is None else base.of_partition(partition)).text

    def _has_former(self, holding: Holding, name: str) -> bool:
        """Return whether a topic that was renamed is assigned here under its former name."""
        try:
            return holding.held(parse_topic(name), self._wall_clock()) is not None
        except InvalidName:
            return False
