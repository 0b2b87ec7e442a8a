"""The size of a generated history, and the numbers that follow from it. Does not use Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.cluster import BROKER_CAPACITY_UNITS_MAX
from nextgen.kernel.routing.slots import SlotTable, initial_table
from pipelines.durations import DAY_MS, HOUR_MS, MINUTE_MS

STARTS_MS = 1_767_225_600_000
"""2026-01-01 00:00 UTC: the beginning of every generated history."""

TOPICS_MAX = 200_000_000
BROKERS_MAX = 1_000
SHARDS_MAX = 64
FOLDERS_MAX = 1_000
"""Shards times days at most: each pair has a file, and the driver makes the manifest."""

EVENTS_PER_TOPIC_MAX = 1_000

NAMESPACES_PER_TENANT_MAX = 12
NAMESPACE_STRIDE = 16
"""Namespace ``i`` of tenant ``k`` has the number ``16 k + i``."""

PARTITIONED_SHARE = 0.04
SCALABLE_SHARE = 0.03
"""Of topics without partitions, unless a part of them is to be scaled by their loads."""

IMPORT_SHARE = 0.3
"""Part of topics that are created on the first day, before anything else happens."""

USED_SHARE = 0.92
"""Part of topics that are ever looked up."""

IDLE_SHARE = 0.45
"""Part of stays that end because the unit becomes idle."""

OPENS_MS = 2 * HOUR_MS
"""Time of the first outage at the earliest: before, the first day's inventory is imported."""

OUTAGES_PER_BROKER = 2
OUTAGE_MS = 20 * MINUTE_MS
"""Length of an outage, from its first sign to the return of the last unit."""

CALM_MS = 5 * MINUTE_MS
"""Time after an outage, into which the events of clients during it are moved."""

_EVENTS_OF_INVENTORY = 1.5
_EVENTS_OF_OUTAGES = 2.2
_EVENTS_PER_STAY = 1.55


@dataclass(frozen=True, slots=True)
class World:
    """The parameters of a history. Equal values give equal events on any machine or cluster.

    Raises:
        InvalidRequest: No such history can be made.
    """

    topics: int
    days: int
    seed: int
    shards: int = 4
    brokers: int = 8
    events_per_topic: float = 10.0
    """Mean, without load reports and recorded lookups. The least is about 5."""
    auto_scaled_percent: int = 0
    """Topics that are scalable, and split and merged by their recorded loads. They are there from
    the first day on. 0: a few topics are scalable, and operators split them."""

    def __post_init__(self) -> None:
        _check("topics", self.topics, 1, TOPICS_MAX)
        _check("days", self.days, 1, FOLDERS_MAX)
        _check("shards", self.shards, 1, SHARDS_MAX)
        _check("brokers", self.brokers, 2, BROKERS_MAX)
        _check("events per topic", self.events_per_topic, 1, EVENTS_PER_TOPIC_MAX)
        _check("percent of topics with loads", self.auto_scaled_percent, 0, 100)
        _check("shards, one more, times days", (self.shards + 1) * self.days, 1, FOLDERS_MAX)
        if self.capacity_units > BROKER_CAPACITY_UNITS_MAX:
            raise InvalidRequest(
                f"{self.brokers} brokers cannot carry {self.topics} topics: ask for more brokers"
            )

    @property
    def length_ms(self) -> int:
        return self.days * DAY_MS

    @property
    def tenants(self) -> int:
        return max(4, min(2_000, round(math.sqrt(self.topics) / 2)))

    @property
    def bursts(self) -> int:
        """Deployments that create many topics of one namespace within minutes."""
        return max(2, 2 * self.days)

    @property
    def outages(self) -> int:
        """Number of broker outages, one at a time: at most six in half a day."""
        return min(OUTAGES_PER_BROKER * self.brokers, 12 * self.days - 2)

    @property
    def outage_slot_ms(self) -> int:
        """Length of the slot of one outage."""
        return (self.length_ms - OPENS_MS) // self.outages

    @property
    def scalable_share(self) -> float:
        """Part of the topics without partitions that are scalable."""
        return self.auto_scaled_percent / 100 or SCALABLE_SHARE

    @property
    def partitioned_share(self) -> float:
        return PARTITIONED_SHARE * (1 - self.auto_scaled_percent / 100)

    @property
    def import_share(self) -> float:
        """Part of topics that are created on the first day."""
        return max(IMPORT_SHARE, self.auto_scaled_percent / 100)

    @property
    def stays_mean(self) -> float:
        """Mean number of stays of a unit."""
        return max(
            1.0,
            (self.events_per_topic - _EVENTS_OF_INVENTORY - _EVENTS_OF_OUTAGES) / _EVENTS_PER_STAY,
        )

    @property
    def capacity_units(self) -> int:
        """Capacity of each broker: twice its share, so that one may be out."""
        return 1_000 * math.ceil((2.4 * self.topics / self.brokers + 100) / 1_000)

    @property
    def slot_table(self) -> SlotTable:
        return initial_table(range(1, self.shards + 1))


def _check(what: str, value: float, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequest(f"{what}: {value} is not between {least} and {most}")
