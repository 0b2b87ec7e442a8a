"""Times of generated events, in milliseconds from the beginning of the history.

Lives of objects are drawn on an even clock, on which events are as frequent by night as by day.
``by_day`` bends that clock, so that more happens by day; ``on_clock`` also moves events that
clients cause out of outages. Outages do not overlap: each has a slot of its own. Both functions
keep the order of times.
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
"""Strength of the daily shape. It is below 1, so that the bent clock always advances: an hour of
the even clock becomes at least half an hour, which is longer than an outage."""

DEATHS_SHARE = 0.7
"""Part of outages that are deaths. The others are drains, in which an operator empties a broker,
stops it and starts it again."""


def by_day(even_ms: Column) -> Column:
    """Return the time on the bent clock."""
    day_ms = f.lit(DAY_MS)
    since = f.pmod(even_ms.cast("long"), day_ms)
    # Slow around the busiest hour, so that much of the even clock falls into it.
    angle = (since / day_ms - f.lit(BUSIEST_HOUR / 24)) * f.lit(2 * math.pi)
    zero = math.sin(-2 * math.pi * BUSIEST_HOUR / 24)
    ahead = (f.sin(angle) - f.lit(zero)) * f.lit(_BEND * DAY_MS / (2 * math.pi))
    return (even_ms.cast("long") - f.round(ahead).cast("long")).cast("long")


def traffic_at(world: World, time_ms: Column) -> Column:
    """Return the factor of all rates: a daily shape that grows by two fifths over the history."""
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
    """Return when the session of the broker ends; in a drain its units leave before."""
    begins = outage_begins(world, outage)
    return begins + f.when(is_death(world, outage), 5 * SECOND_MS).otherwise(3 * MINUTE_MS)


def broker_returns(world: World, outage: Column) -> Column:
    """Return when the next session of the broker begins."""
    after_ms = f.lit(2 * MINUTE_MS) + below(world, 4 * MINUTE_MS, "outage return", outage)
    return session_ends(world, outage) + after_ms


def outage_at(world: World, time_ms: Column) -> Column:
    """Return the number of the outage whose slot contains ``time_ms`` or is nearest to it."""
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
    """Add the times of events. ``columns`` has the name of each new column by that of an even time.

    Times are bent by ``by_day``. A time within an outage moves to the calm behind it.
    """
    # In layers, because each step uses the result of the step before several times.
    bent = frame.withColumns(
        {f"_bent_{name}": by_day(f.floor(even).cast("long")) for even, name in columns.items()}
    )
    placed = bent.withColumns(
        {f"_outage_{name}": outage_at(world, f.col(f"_bent_{name}")) for name in columns.values()}
    )
    begun = placed.withColumns(
        {
            f"_begins_{name}": outage_begins(world, f.col(f"_outage_{name}"))
            for name in columns.values()
        }
    )
    done = begun.withColumns({name: _after_outage(name) for name in columns.values()})
    layers = [
        f"_{layer}_{name}" for layer in ("bent", "outage", "begins") for name in columns.values()
    ]
    return done.drop(*layers)


def _after_outage(name: str) -> Column:
    time_ms, begins = f.col(f"_bent_{name}"), f.col(f"_begins_{name}")
    ends = begins + f.lit(OUTAGE_MS)
    squeezed = (time_ms - begins) * f.lit(CALM_MS / (OUTAGE_MS + CALM_MS))
    is_within = (time_ms >= begins) & (time_ms < ends + f.lit(CALM_MS))
    return f.when(is_within, ends + f.floor(squeezed).cast("long")).otherwise(time_ms)


def spread(world: World, width_ms: int, purpose: str, *keys: Column) -> Column:
    """Return a delay below ``width_ms``, so that units do not all move at once."""
    return f.floor(fraction(world, purpose, *keys) * f.lit(width_ms)).cast("long")
