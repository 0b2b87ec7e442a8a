"""Shadow topics at discovery nodes: their creation, and the lists of their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nextgen.client.model import CreatedTopic, NewTopic, ObjectPolicies, Topic, Written
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY, shadow_source_of

_ATTEMPTS_MAX = 5
"""Changes of one list, which others change at the same time."""

_Names = tuple[str, ...]


class ShadowTopics:
    """What a ``Client`` does about shadows. A source feeds the shadows that it lists.

    Names may have any accepted form. A list has canonical ones.
    """

    async def create_shadow(
        self,
        name: str,
        source: str,
        properties: Mapping[str, str] | None = None,
        *,
        listed: bool = True,
    ) -> CreatedTopic:
        """Create a shadow of ``source``, with as many partitions, and list it there.

        Unless it is ``listed`` nothing is delivered to it that is published from then on.

        Raises:
            Refused: NOT_FOUND, there is no such source; ALREADY_EXISTS; NOT_ALLOWED, the source can
                have no shadows. LIMIT_EXCEEDED: it is created, and the list is full.
        """
        topic = await self._existing(source)
        wanted = {**(properties or {}), SHADOW_SOURCE_PROPERTY: topic.name}
        (created,) = await self.create_topics([NewTopic(name, topic.partitions, wanted)])
        if not created.is_created:
            raise Refused(created.rejection_code, created.message)
        if listed:
            shadow = _canonical(name)
            await self._change_shadows(topic.name, lambda names: (*names, shadow))
        return created

    async def get_shadow_source(self, name: str) -> str:
        """Return the source of a shadow, "" for a topic that is no shadow.

        Raises:
            Refused: NOT_FOUND.
        """
        return shadow_source_of((await self._existing(name)).properties)

    async def get_shadows(self, source: str) -> list[str]:
        """Return the shadows that a topic lists.

        Raises:
            Refused: NOT_FOUND.
        """
        return list((await self.get_policies(source)).policies.shadow_topics)

    async def set_shadows(self, source: str, names: Sequence[str]) -> Written:
        """Have a topic list these shadows and no others.

        Raises:
            Refused: NOT_FOUND; NOT_ALLOWED, one of them is no shadow of it; LIMIT_EXCEEDED.
        """
        wanted = tuple(_canonical(name) for name in names)
        return await self._change_shadows(source, lambda _names: wanted)

    async def remove_shadows(self, source: str, names: Sequence[str] = ()) -> Written:
        """Have a topic list these shadows no more, none at all without ``names``. They stay.

        Raises:
            Refused: NOT_FOUND.
        """
        gone = {_canonical(name) for name in names}

        def without(present: _Names) -> _Names:
            return tuple(name for name in present if name not in gone) if gone else ()

        return await self._change_shadows(source, without)

    async def _change_shadows(self, source: str, change: Callable[[_Names], _Names]) -> Written:
        attempt = 0
        while True:
            attempt += 1
            found = await self.get_policies(source)
            names = tuple(dict.fromkeys(change(found.policies.shadow_topics)))
            policies = replace(found.policies, shadow_topics=names)
            try:
                return await self.set_policies(source, policies, expected_version=found.version)
            except Refused as error:
                if error.code != RejectionCode.VERSION_MISMATCH or attempt == _ATTEMPTS_MAX:
                    raise

    async def _existing(self, name: str) -> Topic:
        topic = await self.get_topic(name)
        if topic is None:
            raise Refused(RejectionCode.NOT_FOUND, f"topic {name} does not exist")
        return topic

    async def get_topic(self, name: str, *, min_position: int = 0) -> Topic | None:
        raise NotImplementedError("a client reads it")

    async def create_topics(self, topics: Sequence[NewTopic | str]) -> list[CreatedTopic]:
        raise NotImplementedError("a client creates them")

    async def get_policies(self, name: str, *, merged: bool = False) -> ObjectPolicies:
        raise NotImplementedError("a client reads them")

    async def set_policies(
        self, name: str, policies: Policies, *, expected_version: int | None = None
    ) -> Written:
        raise NotImplementedError("a client sets them")


def _canonical(name: str) -> str:
    try:
        return parse_topic(name).text
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error
