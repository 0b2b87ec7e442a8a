"""Which kind of brokers serves a namespace and its topics, among their properties.

A namespace is created for one kind and keeps it: messages stay where brokers of that kind keep
them. A topic has the kind of its namespace.
"""

from __future__ import annotations

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.broker_kind import BROKER_KIND_PROPERTY, KINDS, shown_kind
from nextgen.kernel.routing.names import Domain, TopicName
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from shards.domain.properties import Properties

_SHOWN_CHARACTERS_MAX = 80


def broker_kind_in(properties: Properties) -> str:
    """Return the kind of brokers that a namespace or topic with ``properties`` is served by."""
    return dict(properties).get(BROKER_KIND_PROPERTY, "") if properties else ""


def check_broker_kind(properties: Properties) -> Rejected | None:
    """Return why a namespace with ``properties`` may not be created, None if it may."""
    given = dict(properties).get(BROKER_KIND_PROPERTY)
    if given is None or (given and given in KINDS):
        return None
    kinds = " or ".join(repr(each.value) for each in sorted(KINDS) if each)
    return _not_allowed(
        f"property {BROKER_KIND_PROPERTY} is {given[:_SHOWN_CHARACTERS_MAX]!a}, "
        f"it may be {kinds}, or absent for embedded brokers"
    )


def check_broker_kind_kept(what: str, present: Properties, wanted: Properties) -> Rejected | None:
    """Return why ``wanted`` may not replace ``present``, None if it may: the kind of brokers stays.

    ``what`` has them. Its messages are where brokers of that kind keep them.
    """
    if broker_kind_in(present) == broker_kind_in(wanted):
        return None
    return _not_allowed(
        f"property {BROKER_KIND_PROPERTY} of {what} is given when it is created and never changed"
    )


def with_broker_kind(properties: Properties, kind: str) -> Properties:
    """Return ``properties`` with the kind of brokers that serve what has them."""
    if broker_kind_in(properties) == kind:
        return properties
    others = [pair for pair in properties if pair[0] != BROKER_KIND_PROPERTY]
    return tuple(sorted([*others, (BROKER_KIND_PROPERTY, kind)] if kind else others))


def check_topic_kind(name: TopicName, kind: str, properties: Properties) -> Rejected | None:
    """Return why no such topic may be in a namespace of this kind, None if one may."""
    given = broker_kind_in(properties)
    is_shadow = SHADOW_SOURCE_PROPERTY in dict(properties)
    if given and given != kind:
        return _not_allowed(
            f"topic {name.base_text} cannot have property {BROKER_KIND_PROPERTY} of its own: "
            f"its namespace is served by {shown_kind(kind)} brokers"
        )
    if not kind or not (is_shadow or name.domain is Domain.TOPIC):
        return None
    what = "shadows are" if is_shadow else "scalable topics are"
    return _not_allowed(
        f"{name.base_text} cannot be in a namespace of {shown_kind(kind)} brokers: {what} served "
        f"by {shown_kind('')} ones"
    )


def check_renamed_kind(name: str, kind: str, new_name: str, new_kind: str) -> Rejected | None:
    """Return why a topic of ``kind`` may not get a name in a namespace of ``new_kind``."""
    if kind == new_kind:
        return None
    return _not_allowed(
        f"topic {name} is served by {shown_kind(kind)} brokers, "
        f"the namespace of {new_name} by {shown_kind(new_kind)} ones"
    )


def _not_allowed(message: str) -> Rejected:
    return Rejected(RejectionCode.NOT_ALLOWED, message)
