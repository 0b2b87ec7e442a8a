"""The answer to GET_TOPICS_OF_NAMESPACE: all topics or those of a pattern, or that none changed.

A pattern is applied here if that is switched on, if the pattern is not too long, and if it can be
evaluated in linear time. In all other cases the client gets all topics, ``filtered`` is false, and
the client applies the pattern by itself, as with servers that know none of these fields.
"""

from __future__ import annotations

from nextgen.kernel.errors import InvalidRequest, Unavailable
from nextgen.kernel.limits.cluster import PROPERTIES_MAX
from nextgen.kernel.limits.listing import SUBSCRIPTION_PATTERN_CHARACTERS_MAX
from nextgen.kernel.routing.names import Domain, NamespaceName
from nextgen.kernel.routing.property_filter import InvalidFilter, PropertyFilter, property_filter
from nextgen.pulsar.topic_lists.hash import HASH_CHARACTERS
from nextgen.pulsar.topic_lists.pattern import (
    InvalidPattern,
    TopicPattern,
    UnsupportedPattern,
    compile_pattern,
    java_length,
)
from nextgen.pulsar.topic_lists.ports import ListQuestion, TopicLists
from nextgen.pulsar.topic_lists.settings import DEFAULT_TOPIC_LISTS, TopicListSettings
from protos.pulsar import PulsarApi_pb2 as pulsar

_DOMAIN_OF_MODE = {
    pulsar.CommandGetTopicsOfNamespace.PERSISTENT: Domain.PERSISTENT.value,
    pulsar.CommandGetTopicsOfNamespace.NON_PERSISTENT: Domain.NON_PERSISTENT.value,
    pulsar.CommandGetTopicsOfNamespace.ALL: "",
}


class TopicListAnswers:
    """Answers listings of namespaces."""

    def __init__(self, lists: TopicLists, settings: TopicListSettings | None = None) -> None:
        self._lists = lists
        self._settings = settings or DEFAULT_TOPIC_LISTS

    async def answer(
        self, namespace: NamespaceName, request: pulsar.CommandGetTopicsOfNamespace
    ) -> pulsar.CommandGetTopicsOfNamespaceResponse:
        """Return the answer to a listing of ``namespace``.

        Raises:
            InvalidRequest: No topic can have the properties of the filter.
            MetadataError: The pattern does not compile, or the shards could not list the topics.
        """
        properties = _filter_of(request)
        pattern = self._pattern_of(request)
        question = ListQuestion(
            namespace=namespace,
            pattern=pattern,
            domain=_DOMAIN_OF_MODE[request.mode],
            properties=properties,
            known_hash=request.topics_hash,
        )
        found = await self._lists.current(question)
        return pulsar.CommandGetTopicsOfNamespaceResponse(
            request_id=request.request_id,
            topics=found.names or (),
            filtered=pattern is not None,
            topics_hash=found.hash,
            changed=found.names is not None,
        )

    def _pattern_of(self, request: pulsar.CommandGetTopicsOfNamespace) -> TopicPattern | None:
        """Return the pattern to apply here, if any."""
        settings = self._settings
        if not (settings.evaluates_patterns and request.HasField("topics_pattern")):
            return None
        text = request.topics_pattern
        if java_length(text) > settings.pattern_characters_max:
            return None
        try:
            return compile_pattern(text)
        except UnsupportedPattern:
            return None
        except InvalidPattern as error:
            # The code of a stock broker for whatever a listing fails of.
            raise Unavailable(str(error)) from error


def _filter_of(request: pulsar.CommandGetTopicsOfNamespace) -> PropertyFilter:
    try:
        return property_filter((each.key, each.value) for each in request.properties)
    except InvalidFilter as error:
        raise InvalidRequest(str(error)) from error


def needed_of_listing(command: pulsar.BaseCommand) -> pulsar.BaseCommand:
    """Return the command with what ``answer`` reads, to keep while it waits.

    What is longer than any pattern, hash or filter can be is cut, so that it stays too long.
    """
    needed = pulsar.BaseCommand(type=command.type)
    given, kept = command.getTopicsOfNamespace, needed.getTopicsOfNamespace
    kept.request_id = given.request_id
    kept.namespace = given.namespace
    if given.HasField("mode"):
        kept.mode = given.mode
    if given.HasField("topics_pattern"):
        kept.topics_pattern = given.topics_pattern[: SUBSCRIPTION_PATTERN_CHARACTERS_MAX + 1]
    if len(given.topics_hash) == HASH_CHARACTERS:
        kept.topics_hash = given.topics_hash
    kept.properties.extend(given.properties[: PROPERTIES_MAX + 1])
    return needed
