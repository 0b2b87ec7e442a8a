"""What a run of the job is asked for, and the numbers that go from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.placement import QUOTA_UNITS_MAX

HEADROOM_PERCENT = 20
"""Of a broker, left free; and on top of what a tenant had in all but its fullest hours."""

HEADROOM_PERCENT_MAX = 90
PERMILLE = 1_000


@dataclass(frozen=True, slots=True)
class Question:
    """How quotas are to be made."""

    headroom_percent: int = HEADROOM_PERCENT
    floor_units: int = 0
    """Least that a tenant has; one unit in each shard if that is more."""

    version: int = 0
    """Of the quotas; 0: behind the last that the export knows of."""

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            InvalidRequest: It cannot be.
        """
        if not 0 <= self.headroom_percent <= HEADROOM_PERCENT_MAX:
            raise InvalidRequest(f"headroom is 0 to {HEADROOM_PERCENT_MAX} percent")
        if not 0 <= self.floor_units <= QUOTA_UNITS_MAX:
            raise InvalidRequest(f"a floor is 0 to {QUOTA_UNITS_MAX} units")
        if self.version < 0:
            raise InvalidRequest("quotas have a version from 1 on")

    @property
    def target_permille(self) -> int:
        """How full a broker may be."""
        return PERMILLE - 10 * self.headroom_percent

    @property
    def growth_permille(self) -> int:
        """What a tenant may have for each thousand that it had."""
        return PERMILLE + 10 * self.headroom_percent


@dataclass(frozen=True, slots=True)
class Shares:
    """What there is, and what tenants would like of it."""

    available_units: int
    tenants: int
    needed_units: int
    floor_units: int

    @property
    def floors_units(self) -> int:
        return self.tenants * self.floor_units

    @property
    def spare_units(self) -> int:
        """What is left when every tenant has its floor."""
        return self.available_units - self.floors_units

    @property
    def wished_units(self) -> int:
        """What tenants would like beyond their floors."""
        return self.needed_units - self.floors_units

    @property
    def is_scarce(self) -> bool:
        return self.needed_units > self.available_units
