"""What a topic's new name must be, whatever else exists, and which former names it leaves."""

from __future__ import annotations

from collections.abc import Iterable

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.write import FORMER_NAMES_MAX, RENAME_GRACE_MS_MAX
from nextgen.kernel.routing.names import Domain, TopicName
from nextgen.kernel.routing.system_topics import is_system_topic
from shards.domain.renames.names import OldName

RENAMED_DOMAINS = frozenset({Domain.PERSISTENT, Domain.NON_PERSISTENT})


def check_rename(name: TopicName, new_name: TopicName, grace_ms: int) -> Rejected | None:
    """Return why no topic called ``name`` may get ``new_name``; None if one may."""
    if new_name.partition is not None or new_name.segment is not None:
        return Rejected(
            RejectionCode.INVALID_NAME,
            f"{new_name.text} names a part of a topic: no topic gets such a name",
        )
    if name.domain not in RENAMED_DOMAINS or new_name.domain not in RENAMED_DOMAINS:
        scalable = name if name.domain not in RENAMED_DOMAINS else new_name
        return _not_allowed(f"{scalable.base_text} is scalable: such topics are not renamed")
    if name.domain is not new_name.domain:
        return _not_allowed(
            f"topic {name.base_text} stays in its domain: {new_name.base_text} is in another"
        )
    for each in (name, new_name):
        if is_system_topic(each.base_text):
            return _not_allowed(f"{each.base_text} is the name of a system topic")
    if not 0 <= grace_ms <= RENAME_GRACE_MS_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"a former name leads to its topic for at most {RENAME_GRACE_MS_MAX} ms, "
            f"{grace_ms} asked for",
        )
    return None


def names_after(
    name: str, former: Iterable[OldName], time_ms: int, grace_ms: int
) -> tuple[tuple[OldName, ...], tuple[str, ...]] | Rejected:
    """Return the former names of a topic that is called ``name`` and is renamed at ``time_ms``, and
    those that do not lead to it any more."""
    kept = [each for each in former if each.until_ms > time_ms]
    dropped = [each.name for each in former if each.until_ms <= time_ms]
    if len(kept) >= FORMER_NAMES_MAX:
        first = min(each.until_ms for each in kept)
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{len(kept)} former names lead to topic {name}, at most {FORMER_NAMES_MAX} may: "
            f"the next is free at {first} ms",
        )
    return (*kept, OldName(name, time_ms + grace_ms)), tuple(dropped)


def leads(former: Iterable[OldName], name: str, time_ms: int) -> bool:
    """Return whether ``name`` is one of the former names and leads to the topic still."""
    return any(each.name == name and each.until_ms > time_ms for each in former)


def _not_allowed(message: str) -> Rejected:
    return Rejected(RejectionCode.NOT_ALLOWED, message)
