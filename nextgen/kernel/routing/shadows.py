"""Shadow topics: which topic is one, and of which source.

A shadow is an ordinary topic, created with a property that names its source. It has no entries of
its own: it serves its source's to subscriptions of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

SHADOW_SOURCE_PROPERTY = "PULSAR.SHADOW_SOURCE"
"""Set when a shadow is created and never changed. The value is the base name of its source in
canonical form, as in ``TopicName.base_text``. Pulsar's clients set it: never rename."""


def shadow_source_of(properties: Mapping[str, str]) -> str:
    """Return the base name of the source of a topic with ``properties``, "" if it is no shadow."""
    return properties.get(SHADOW_SOURCE_PROPERTY, "")
