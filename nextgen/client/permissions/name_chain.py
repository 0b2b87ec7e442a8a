"""How the name of a topic that was renamed leads to the topic whose permissions decide.

    name at the shard of its slot ── pointer ──▶ name at the topic's home ── former ──▶ topic
                 ╰────────────────── no pointer: it is the topic, or absent ───────────────╯

Nearly every name is its topic's: one object, as that of a namespace. A former name has the
permissions of its topic, as they are, for as long as it leads there; those of namespace and tenant
are of the name that is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from nextgen.kernel.limits.write import FORMER_NAMES_MAX
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Kind

Key = tuple[Kind, str, str]
"""Kind, name, and the id of the topic at whose home it is followed; "": at its own slot's shard."""

_CHAIN_MAX = FORMER_NAMES_MAX + 2
"""Objects of a chain: two for the pointer, one more for each rename that was followed."""


class Leading(Protocol):
    """A followed name: a ``KnownObject``."""

    def leads_to(self, now_ms: int) -> Key | None:
        """Return the object that decides instead of this one; None: this one decides."""


Known = TypeVar("Known", bound=Leading)


def topic_chain(
    objects: Mapping[Key, Known], topic: str, now_ms: int
) -> tuple[list[Known], Key | None]:
    """Return the followed objects by which a name leads to its topic, in their order, and the key
    of the next one if that is not followed; None: the last one decides."""
    chain: list[Known] = []
    key: Key | None = (KIND_TOPIC, topic, "")
    while key is not None and len(chain) < _CHAIN_MAX:
        known = objects.get(key)
        if known is None:
            return chain, key
        chain.append(known)
        key = known.leads_to(now_ms)
    return chain, None
