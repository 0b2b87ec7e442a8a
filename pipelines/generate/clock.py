"""Times of generated events, in milliseconds from the beginning of the history.

Lives of objects are drawn on an even clock, on which every hour is like another. ``by_day`` bends
that clock, so that more happens by day than at night; ``on_clock`` also moves what clients ask for
out of outages, which are one at a time, each in a slot of its own. Both keep the order of times, so
what was before something else stays so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipelines.durations import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from pipelines.generate.chance import below, fraction, happens
from pipelines.generate.world import CALM_MS, OPENS_MS, OUTAGE_MS, World

BUSIEST_HOUR = 14

_BEND = 0.5
"""Below 1, so that the bent clock never stands: an hour of the even one is half an hour at least,
which is more than an outage."""

DEATHS_SHARE = 0.7
"""Of outages. The others are drains: emptied, stopped and started again by an operator."""


def by_day(even_ms: Column) -> Column:
    """Return the time on the bent clock."""
    day_ms = f.lit(DAY_MS)
    since = f.pmod(even_ms.cast("long"), day_ms)
    # Slow around the busiest hour: so much of the even clock passes then.
    angle = (since / day_ms - f.lit(BUSIEST_HOUR / 24)) * f.lit(2 * math.pi)
    zero = math.sin(-2 * math.pi * BUSIEST_HOUR / 24)
    ahead = (f.sin(angle) - f.lit(zero)) * f.lit(_BEND * DAY_MS / (2 * math.pi))
    return (even_ms.cast("long") - f.round(ahead).cast("long")).cast("long")


def traffic_at(world: World, time_ms: Column) -> Column:
    """Return what all rates are multiplied with: a daily shape that grows by two fifths."""
    hours = f.pmod(time_ms, f.lit(DAY_MS)) / f.lit(HOUR_MS)
    wave = f.cos((hours - f.lit(BUSIEST_HOUR)) * f.lit(2 * math.pi / 24))
    growth = f.lit(1.0) + time_ms / f.lit(world.length_ms) * f.lit(0.4)
    return (f.lit(1.0) + wave * f.lit(0.55)) * growth


def outage_begins(world: World, outage: Column) -> Column:
    """Return the first sign of outage number ``outage``."""
    spare_ms = world.outage_slot_ms - OUTAGE_MS - CALM_MS
    begins = f.lit(OPENS_MS) + outage * f.lit(world.outage_slot_ms)
    return (begins + below(world, spare_ms, "outage begins", outage)).cast("long")


def outage_broker(world: World, outage: Column) -> Column:
    """Return the number of the broker that is out."""
    return below(world, world.brokers, "outage broker", outage).cast("int")


def is_death(world: World, outage: Column) -> Column:
    """Return whether the broker dies; else it is drained."""
    return happens(world, DEATHS_SHARE, "outage kind", outage)


def session_ends(world: World, outage: Column) -> Column:
    """Return when the session of the broker ends: a drain empties it first."""
    begins = outage_begins(world, outage)
    return begins + f.when(is_death(world, outage), 5 * SECOND_MS).otherwise(3 * MINUTE_MS)


def broker_returns(world: World, outage: Column) -> Column:
    """Return when the next session of the broker begins."""
    after_ms = f.lit(2 * MINUTE_MS) + below(world, 4 * MINUTE_MS, "outage return", outage)
    return session_ends(world, outage) + after_ms


def outage_at(world: World, time_ms: Column) -> Column:
    """Return the number of the outage in whose slot ``time_ms`` is; of the nearest if in none."""
    slot = f.floor((time_ms - f.lit(OPENS_MS)) / f.lit(world.outage_slot_ms)).cast("long")
    return f.least(f.greatest(slot, f.lit(0)), f.lit(world.outages - 1)).cast("long")


def returns_before(world: World, time_ms: Column) -> Column:
    """Return how many brokers have come back from outages until ``time_ms``."""
    outage = outage_at(world, time_ms)
    return outage + (time_ms >= broker_returns(world, outage)).cast("long")


def is_out(world: World, broker: Column, time_ms: Column) -> Column:
    """Return whether the broker has no session at ``time_ms``."""
    outage = outage_at(world, time_ms)
    is_between = (time_ms >= session_ends(world, outage)) & (
        time_ms < broker_returns(world, outage)
    )
    return is_between & (broker.cast("long") == outage_broker(world, outage).cast("long"))


def on_clock(frame: DataFrame, world: World, columns: Mapping[str, str]) -> DataFrame:
    """Add the times of events: of each even time (key) the one on the clock, as the value is named.

    By day, and if that is within an outage, at a moment of the calm behind it.
    """
    # In layers, because each step needs the one before several times.
    bent = frame.withColumns(
        {f"_bent_{told}": by_day(f.floor(even).cast("long")) for even, told in columns.items()}
    )
    placed = bent.withColumns(
        {f"_outage_{told}": outage_at(world, f.col(f"_bent_{told}")) for told in columns.values()}
    )
    begun = placed.withColumns(
        {
            f"_begins_{told}": outage_begins(world, f.col(f"_outage_{told}"))
            for told in columns.values()
        }
    )
    done = begun.withColumns({told: _after_outage(told) for told in columns.values()})
    layers = [
        f"_{layer}_{told}" for layer in ("bent", "outage", "begins") for told in columns.values()
    ]
    return done.drop(*layers)


def _after_outage(told: str) -> Column:
    time_ms, begins = f.col(f"_bent_{told}"), f.col(f"_begins_{told}")
    ends = begins + f.lit(OUTAGE_MS)
    squeezed = (time_ms - begins) * f.lit(CALM_MS / (OUTAGE_MS + CALM_MS))
    is_within = (time_ms >= begins) & (time_ms < ends + f.lit(CALM_MS))
    return f.when(is_within, ends + f.floor(squeezed).cast("long")).otherwise(time_ms)


def spread(world: World, width_ms: int, purpose: str, *keys: Column) -> Column:
    """Return a delay below ``width_ms``: units do not all move at once."""
    return f.floor(fraction(world, purpose, *keys) * f.lit(width_ms)).cast("long")
