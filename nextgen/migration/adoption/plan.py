"""What an adoption would do, and what hinders it: decided from facts, without I/O.

A hindrance that is ``untried`` is a feature that nobody has tried in namespaces that are handed
over. Whoever knows better may go on in spite of it. With any other hindrance clients would fail, or
topics would have no place here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nextgen.kernel.routing.names import NamespaceName

PLACEMENT = "nextgen.placement"
"""The property of a namespace in Pulsar's metadata that hands it over; the plug-in reads it."""

BY_TOPIC = "topic"

CREATED_PER_SECOND = 1_000
CLAIMED_PER_SECOND = 500
"""Half of what was seen on two cores that ran both clusters and their clients (see ADR 0181)."""

_SYSTEM_TENANT = "pulsar"
_FUNCTIONS = "public/functions"


@dataclass(frozen=True, slots=True)
class StockBroker:
    """A broker of the stock cluster that has a sidecar with a session."""

    broker_id: str
    """Here."""
    broker: str
    """In its Pulsar cluster."""
    pulsar_version: str
    capacity_units: int
    open_topics: int
    """Of the namespace."""


@dataclass(frozen=True, slots=True)
class PulsarNamespace:
    """The namespace as the stock cluster has it. ``topics``: partitions by name, 0 for none."""

    properties: Mapping[str, str]
    replication_clusters: tuple[str, ...]
    is_deleted: bool
    topics: Mapping[str, int]
    refused_names: tuple[str, ...] = ()
    """Names that cannot exist here, each with the reason."""
    creates_partitioned: bool | None = None
    """Whether topics that clients begin to use get partitions; None: as the brokers have it."""


@dataclass(frozen=True, slots=True)
class OwnNamespace:
    """What is here already. ``topics``: partitions by name."""

    has_tenant: bool
    exists: bool
    is_deleting: bool
    topics: Mapping[str, int] = field(default_factory=dict)
    is_embedded: bool = False
    """It was created for embedded brokers, which keep its messages elsewhere."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a plan is made from."""

    namespace: NamespaceName
    in_pulsar: PulsarNamespace | None
    here: OwnNamespace
    pulsar_brokers: tuple[str, ...]
    """Ids of all brokers of the stock cluster."""
    stock_brokers: tuple[StockBroker, ...]
    settings: Mapping[str, str] | None
    """The configuration of the broker that was asked; None if it may not be read."""


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why a namespace is not handed over."""

    kind: str
    sentence: str
    is_untried: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What an adoption would do."""

    namespace: str
    is_adopted: bool
    """The property is set: a run only completes what is missing."""
    creates_tenant: bool
    creates_namespace: bool
    creates_topics: Mapping[str, int]
    """Partitions by name."""
    present_topics: int
    open_topics: int
    brokers: tuple[StockBroker, ...]
    hindrances: tuple[Hindrance, ...]
    remarks: tuple[str, ...]
    """What hinders nothing, and leaves topics without a broker until a run."""
    seconds: float
    """An estimate, on the high side."""

    def blockers(self, *, allow_untried: bool) -> tuple[Hindrance, ...]:
        """Return the hindrances that forbid a run."""
        return tuple(each for each in self.hindrances if not (allow_untried and each.is_untried))

    def as_dict(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "adopted": self.is_adopted,
            "creates": {
                "tenant": self.creates_tenant,
                "namespace": self.creates_namespace,
                "topics": len(self.creates_topics),
                "partitions": sum(self.creates_topics.values()),
            },
            "present_topics": self.present_topics,
            "open_topics": self.open_topics,
            "brokers": {
                each.broker_id: {"broker": each.broker, "open_topics": each.open_topics}
                for each in self.brokers
            },
            "hindrances": [
                {"kind": each.kind, "untried": each.is_untried, "sentence": each.sentence}
                for each in self.hindrances
            ],
            "remarks": list(self.remarks),
            "seconds": self.seconds,
        }


def make_plan(facts: Facts) -> Plan:
    """Return what an adoption would do."""
    wanted = {} if facts.in_pulsar is None else facts.in_pulsar.topics
    creates = {name: count for name, count in wanted.items() if name not in facts.here.topics}
    open_topics = sum(each.open_topics for each in facts.stock_brokers)
    is_adopted = (
        facts.in_pulsar is not None and facts.in_pulsar.properties.get(PLACEMENT) == BY_TOPIC
    )
    return Plan(
        namespace=facts.namespace.text,
        is_adopted=is_adopted,
        creates_tenant=not facts.here.has_tenant,
        creates_namespace=not facts.here.exists,
        creates_topics=creates,
        present_topics=len(wanted) - len(creates),
        open_topics=open_topics,
        brokers=facts.stock_brokers,
        hindrances=tuple(hindrances(facts)),
        remarks=(
            *(_unserved(creates) if is_adopted else ()),
            *_of_later_topics(facts),
        ),
        seconds=round(len(creates) / CREATED_PER_SECOND + open_topics / CLAIMED_PER_SECOND, 1),
    )


def hindrances(facts: Facts) -> list[Hindrance]:
    """Return why the namespace should not be handed over, most serious first."""
    if facts.in_pulsar is None:
        return [Hindrance("absent", f"Pulsar has no namespace {facts.namespace.text}")]
    return [
        *_of_namespace(facts, facts.in_pulsar),
        *_of_brokers(facts),
        *_of_topics(facts, facts.in_pulsar),
        *_of_features(facts, facts.in_pulsar),
    ]


def _unserved(missing: Mapping[str, int]) -> list[str]:
    """Return what Pulsar has of a namespace that is handed over, and no lookup creates here."""
    return [
        f"{name} has {count} partitions and is served by no broker until 'nextgen adopt run'"
        for name, count in missing.items()
        if count
    ]


def _of_later_topics(facts: Facts) -> list[str]:
    """Say what becomes of topics to which Pulsar will give partitions by itself."""
    if facts.in_pulsar is None:
        return []
    is_partitioned = facts.in_pulsar.creates_partitioned
    if is_partitioned is None:
        of_brokers = (facts.settings or {}).get("allowAutoTopicCreationType", "")
        is_partitioned = of_brokers.lower() == "partitioned"
    if not is_partitioned:
        return []
    return [
        "Pulsar gives partitions to topics that clients begin to use: each is served once "
        "'nextgen adopt run' was run again"
    ]


def _of_namespace(facts: Facts, in_pulsar: PulsarNamespace) -> list[Hindrance]:
    found = []
    name = facts.namespace.text
    if facts.namespace.tenant == _SYSTEM_TENANT:
        found.append(Hindrance("system", f"{name} is Pulsar's own, its brokers keep it"))
    elif name == _FUNCTIONS:
        found.append(Hindrance("system", f"{name} is that of functions' workers, which need it"))
    if name in _words((facts.settings or {}).get("bootstrapNamespaces", "")):
        found.append(Hindrance("bootstrap", f"{name} is in bootstrapNamespaces"))
    if in_pulsar.is_deleted:
        found.append(Hindrance("deleting", f"{name} is being deleted in Pulsar"))
    if facts.here.is_deleting:
        found.append(Hindrance("deleting", f"{name} is being deleted or renamed here"))
    if facts.here.is_embedded:
        found.append(
            Hindrance(
                "embedded",
                f"{name} is here already, for embedded brokers, and a namespace keeps its kind of "
                "brokers: delete it here first",
            )
        )
    return found


def _of_brokers(facts: Facts) -> list[Hindrance]:
    commanded = {each.broker for each in facts.stock_brokers}
    found = [
        Hindrance(
            "no_sidecar",
            f"broker {each} has no sidecar with a session: it would refuse the topics; the log of "
            "its sidecar says whether its plug-in is of another release",
        )
        for each in facts.pulsar_brokers
        if each not in commanded
    ]
    if not facts.pulsar_brokers:
        found.append(Hindrance("no_broker", "Pulsar names no active broker"))
    for each in facts.stock_brokers:
        if each.open_topics > each.capacity_units:
            found.append(
                Hindrance(
                    "capacity",
                    f"broker {each.broker_id} has {each.open_topics} topics of it open, and a "
                    f"capacity of {each.capacity_units} units",
                )
            )
    return found


def _of_topics(facts: Facts, in_pulsar: PulsarNamespace) -> list[Hindrance]:
    found = [Hindrance("name", each) for each in in_pulsar.refused_names]
    for name, count in in_pulsar.topics.items():
        here = facts.here.topics.get(name, count)
        if here != count:
            found.append(
                Hindrance(
                    "partitions",
                    f"{name} has {count} partitions in Pulsar and {here} here: "
                    f"{_remedy(name, count, here)}",
                )
            )
    return found


def _remedy(name: str, count: int, here: int) -> str:
    """Return what gives a topic the partitions that it has in Pulsar."""
    if 0 < here < count:
        return f"'nextgen topics grow {name} {count}' gives it the others"
    # Of a topic that a stock broker has, the second command is refused: Pulsar loses nothing.
    return (
        f"'nextgen topics unload {name}' and 'nextgen topics delete {name} --force' remove it here "
        "alone, and a run brings it again"
    )


def _of_features(facts: Facts, in_pulsar: PulsarNamespace) -> list[Hindrance]:
    found = []
    if facts.settings is None:
        found.append(
            Hindrance(
                "settings",
                "the brokers' configuration may not be read: it is not known whether transactions "
                "are on, and which namespaces are in bootstrapNamespaces",
                is_untried=True,
            )
        )
    elif facts.settings.get("transactionCoordinatorEnabled", "").lower() == "true":
        found.append(
            Hindrance("transactions", "transactionCoordinatorEnabled is set", is_untried=True)
        )
    if len(in_pulsar.replication_clusters) > 1:
        clusters = ", ".join(in_pulsar.replication_clusters)
        found.append(
            Hindrance("replication", f"it is replicated to clusters {clusters}", is_untried=True)
        )
    versions = sorted({each.pulsar_version for each in facts.stock_brokers})
    if len(versions) > 1:
        found.append(
            Hindrance("versions", f"brokers of versions {', '.join(versions)}", is_untried=True)
        )
    return found


def _words(setting: str) -> set[str]:
    """Return the names in a setting, as Pulsar shows a set: ``[a, b]`` or ``a,b``."""
    return {word.strip() for word in setting.strip("[] ").split(",")} - {""}
