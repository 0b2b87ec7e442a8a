"""The parameters of a run of the job, and the totals that one step hands to the next."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.placement import QUOTA_UNITS_MAX

HEADROOM_PERCENT = 20
"""Part of a broker that stays free, and the part added to a tenant's 95th percentile of units."""

HEADROOM_PERCENT_MAX = 90
PERMILLE = 1_000


@dataclass(frozen=True, slots=True)
class Question:
    """The parameters of a run."""

    headroom_percent: int = HEADROOM_PERCENT
    floor_units: int = 0
    """Least units of a tenant; at least one unit for each shard."""

    version: int = 0
    """Version of the quotas; 0: one more than the last in the export."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            InvalidRequest: A value is out of bounds.
        """
        if not 0 <= self.headroom_percent <= HEADROOM_PERCENT_MAX:
            raise InvalidRequest(f"headroom is 0 to {HEADROOM_PERCENT_MAX} percent")
        if not 0 <= self.floor_units <= QUOTA_UNITS_MAX:
            raise InvalidRequest(f"a floor is 0 to {QUOTA_UNITS_MAX} units")
        if self.version < 0:
            raise InvalidRequest("quotas have a version from 1 on")

    @property
    def target_permille(self) -> int:
        """The part of a broker's capacity that may be leased."""
        return PERMILLE - 10 * self.headroom_percent

    @property
    def growth_permille(self) -> int:
        """Units of a tenant's quota for each thousand units that it had."""
        return PERMILLE + 10 * self.headroom_percent


@dataclass(frozen=True, slots=True)
class Shares:
    """The available units, and the units that tenants need."""

    available_units: int
    tenants: int
    needed_units: int
    floor_units: int

    @property
    def floors_units(self) -> int:
        return self.tenants * self.floor_units

    @property
    def spare_units(self) -> int:
        """Available units beyond the floors of all tenants."""
        return self.available_units - self.floors_units

    @property
    def wished_units(self) -> int:
        """Units that tenants need beyond their floors."""
        return self.needed_units - self.floors_units

    @property
    def is_scarce(self) -> bool:
        return self.needed_units > self.available_units
