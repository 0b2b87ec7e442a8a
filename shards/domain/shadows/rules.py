"""What a shadow's name and source must be, whatever exists. The rest its source's shard decides."""

from __future__ import annotations

from collections.abc import Mapping

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY, shadow_source_of
from shards.domain.properties import Properties


def check_shadow(name: TopicName, properties: Properties) -> Rejected | None:
    """Return why a topic with ``properties`` may not be called ``name``; None if it may, or if it
    is no shadow."""
    text = dict(properties).get(SHADOW_SOURCE_PROPERTY) if properties else None
    if text is None:
        return None
    try:
        source = parse_topic(text)
    except InvalidName as error:
        return _invalid(f"property {SHADOW_SOURCE_PROPERTY}: {error}")
    if name.domain is not Domain.PERSISTENT:
        return _invalid(f"topic {name.base_text} cannot be a shadow: it is not persistent")
    if source.domain in (Domain.TOPIC, Domain.SEGMENT):
        return Rejected(
            RejectionCode.SCALABLE,
            f"{source.text} cannot be a source of shadows: it is a scalable topic",
        )
    if source.domain is not Domain.PERSISTENT:
        return _invalid(f"{source.text} cannot be a source of shadows: it is not persistent")
    if source.partition is not None:
        return _invalid(
            f"{source.text} names a partition: a shadow is one of {source.base_text} as a whole"
        )
    if source.base_text == name.base_text:
        return _invalid(f"topic {name.base_text} cannot be a shadow of itself")
    return None


def canonical_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return ``properties`` with the source of a shadow, if it is one, in canonical form.

    They were checked by ``check_shadow``.
    """
    if SHADOW_SOURCE_PROPERTY not in properties:
        return dict(properties)
    source = parse_topic(shadow_source_of(properties))
    return {**properties, SHADOW_SOURCE_PROPERTY: source.base_text}


def _invalid(message: str) -> Rejected:
    return Rejected(RejectionCode.INVALID_NAME, message)
