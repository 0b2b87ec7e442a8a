"""Patterns that come with no namespace beside them: they begin with it."""

from __future__ import annotations

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.listing import SUBSCRIPTION_PATTERN_CHARACTERS_MAX
from nextgen.kernel.routing.names import InvalidName, NamespaceName, parse_namespace
from nextgen.pulsar.topic_lists.pattern import (
    InvalidPattern,
    TopicPattern,
    UnsupportedPattern,
    compile_pattern,
)


def parse_namespace_pattern(text: str) -> tuple[NamespaceName, TopicPattern]:
    """Return the namespace that a pattern like ``tenant/namespace/orders-.*`` is about, and it.

    Raises:
        InvalidRequest: It does not begin with a namespace, or is none that is evaluated here.
    """
    if len(text) > SUBSCRIPTION_PATTERN_CHARACTERS_MAX:
        raise InvalidRequest(
            f"the pattern has {len(text)} characters, "
            f"at most {SUBSCRIPTION_PATTERN_CHARACTERS_MAX} are allowed"
        )
    try:
        pattern = compile_pattern(text)
        return parse_namespace("/".join(pattern.text.lstrip("^").split("/")[:2])), pattern
    except (InvalidPattern, UnsupportedPattern, InvalidName) as error:
        raise InvalidRequest(str(error)) from error
