"""What a rename of a topic says: the new name, and what its client needs to be allowed."""

from __future__ import annotations

from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.routing.names import TopicName, parse_topic

Needs = list[tuple[Action, Resource]]


def parse_new_name(name: TopicName, text: str) -> TopicName:
    """Return the name that the topic ``name`` is to get.

    A ``text`` without a domain is of the topic's own; one without a slash besides is in its
    namespace. So nobody moves a topic to ``public/default`` who means to rename it where it is.

    Raises:
        InvalidName: It is no topic's name.
    """
    if "://" in text:
        return parse_topic(text)
    if "/" not in text:
        text = f"{name.tenant}/{name.namespace}/{text}"
    return parse_topic(f"{name.domain}://{text}")


def needs_of_rename(name: str, new_name: str) -> Needs:
    """Return what the client needs: to delete the topic, and to create one of the new name.

    Both belong to the admins of a tenant: nobody brings a topic into a tenant, or out of one, that
    somebody else administers.

    Raises:
        InvalidName: One is no topic's name.
    """
    topic = parse_topic(name)
    wanted = parse_new_name(topic, new_name)
    return [
        (Action.DELETE, Resource.topic(topic.base_text)),
        (Action.CREATE, Resource.topic(wanted.base_text)),
    ]
