"""What a client needs for the other topic of a shadow and its source (Pulsar's SHADOW_TOPIC).

Whoever makes a topic a shadow, or lists one, administers both: else whoever may create topics
elsewhere could read a source's messages. The permissions to produce and consume are a shadow's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY, shadow_source_of

Needs = list[tuple[Action, Resource]]


def needs_of_new_topic(properties: Mapping[str, str] | None) -> Needs:
    """Return what the creator of a topic needs besides: to change its source, if it has one.

    Raises:
        InvalidName: The source is no topic's name.
    """
    source = shadow_source_of(properties or {})
    try:
        return needs_of_shadows([source]) if source else []
    except InvalidName as error:
        raise InvalidName(f"{SHADOW_SOURCE_PROPERTY}: {error}") from error


def needs_of_shadows(shadows: Iterable[str]) -> Needs:
    """Return the needs of a request that sets these shadows of a source, beside those of its path:
    to change each shadow.

    Raises:
        InvalidName: One is no topic's name.
    """
    return [(Action.CHANGE, Resource.topic(parse_topic(name).text)) for name in shadows]
