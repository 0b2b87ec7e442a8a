"""The broker directory: every broker's present session, as its broker manager reported it.

Each session of a broker id has a higher epoch than the one before. Reports may arrive late, twice
and from two leaders of one shard. The higher epoch wins, and within an epoch the higher revision.
A session that was recorded as ended never returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import (
    ADDRESS_BYTES_MAX,
    BROKERS_MAX,
    NODE_ID_BYTES_MAX,
    STORED_INTEGER_MAX,
)
from nextgen.kernel.limits.placement import DRAIN_UNITS_PER_SECOND_MAX


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's latest known session."""

    broker_id: str
    session_id: str
    epoch: int
    is_live: bool
    pulsar_url: str = ""
    grpc: str = ""
    http: str = ""
    capacity_units: int = 0
    zone: str = ""
    rack: str = ""
    quarantined_until_ms: int = 0
    """Unix time before which nothing is assigned to the broker, 0 for no quarantine."""

    draining: bool = False
    drain_units_per_second: int = 0
    revision: int = 0
    """Counts the changes within the session."""

    announced_units: int = 0
    """The capacity that the broker announced, if it was lowered since; 0: ``capacity_units``."""

    kind: str = ""
    """Where it keeps messages: a ``BrokerKind``, "" of an embedded broker."""


@dataclass(frozen=True, slots=True)
class RecordBroker:
    """A broker manager reported this session."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class BrokerRecorded:
    """The broker's session from this event on."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class BrokerDirectory:
    """All brokers by id. The mapping is never changed in place."""

    brokers: Mapping[str, Broker] = field(default_factory=dict)

    def live(self) -> tuple[Broker, ...]:
        """Return the brokers whose session is live, by id."""
        return tuple(self.brokers[key] for key in sorted(self.brokers) if self.brokers[key].is_live)


INITIAL = BrokerDirectory()


def decide(state: BrokerDirectory, command: RecordBroker) -> Accepted[BrokerRecorded] | Rejected:
    """Accept a report that is newer than the recorded session; a repeated one changes nothing."""
    broker = command.broker
    if not broker.broker_id or not broker.session_id or not 1 <= broker.epoch <= STORED_INTEGER_MAX:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"session {broker.session_id!r} of broker {broker.broker_id!r} at epoch "
            f"{broker.epoch} names no session",
        )
    texts = (
        *(broker.session_id, broker.pulsar_url, broker.grpc, broker.http),
        *(broker.zone, broker.rack, broker.kind),
    )
    if len(broker.broker_id.encode()) > NODE_ID_BYTES_MAX or any(
        len(text.encode()) > ADDRESS_BYTES_MAX for text in texts
    ):
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            "a broker's id, address, zone, rack or kind is longer than allowed",
        )
    if refused := _refused_number(broker):
        return Rejected(RejectionCode.LIMIT_EXCEEDED, f"broker {broker.broker_id}: {refused}")
    known = state.brokers.get(broker.broker_id)
    if known is None:
        if len(state.brokers) >= BROKERS_MAX:
            return Rejected(
                RejectionCode.LIMIT_EXCEEDED,
                f"the directory has {len(state.brokers)} brokers, {BROKERS_MAX} are allowed",
            )
        return Accepted((BrokerRecorded(broker),))
    if known == broker:
        return Accepted(())
    stale = _stale_reason(known, broker)
    if stale:
        return Rejected(RejectionCode.STALE_EPOCH, stale)
    return Accepted((BrokerRecorded(broker),))


def evolve(state: BrokerDirectory, event: BrokerRecorded) -> BrokerDirectory:
    """Return the directory after ``event``."""
    return BrokerDirectory({**state.brokers, event.broker.broker_id: event.broker})


def _refused_number(broker: Broker) -> str:
    if not 0 <= broker.drain_units_per_second <= DRAIN_UNITS_PER_SECOND_MAX:
        return f"a drain of {broker.drain_units_per_second} units a second cannot be"
    for name, number in (
        ("quarantine until", broker.quarantined_until_ms),
        ("revision", broker.revision),
        ("announced units", broker.announced_units),
    ):
        if not 0 <= number <= STORED_INTEGER_MAX:
            return f"{name} {number} cannot be"
    return ""


def _stale_reason(known: Broker, reported: Broker) -> str:
    if reported.epoch < known.epoch:
        return f"broker {known.broker_id} is at epoch {known.epoch}, the report at {reported.epoch}"
    if reported.epoch > known.epoch:
        return ""
    if reported.session_id != known.session_id:
        return (
            f"epoch {known.epoch} of broker {known.broker_id} is session {known.session_id}, "
            f"not {reported.session_id}"
        )
    if not known.is_live:
        return f"session {known.session_id} of broker {known.broker_id} has ended"
    if reported.is_live and reported.revision < known.revision:
        return (
            f"session {known.session_id} of broker {known.broker_id} is at revision "
            f"{known.revision}, the report at {reported.revision}"
        )
    return ""
