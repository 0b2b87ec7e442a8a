"""The rules of renaming a tenant or namespace: which step is next, and what is refused.

    no NEW ──▶ check all topics ──▶ mark OLD ──▶ copy OLD to NEW ──▶ rename topics ──▶ delete OLD
               NEW of this rename ──────────────────────────────────────╯     no OLD: done before

The marks are properties that shards let renames alone set, those of
``nextgen.kernel.routing.renamed_parents``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b

from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action, Resource
from nextgen.kernel.limits.write import FORMER_NAMES_MAX, RENAME_GRACE_MS_MAX
from nextgen.kernel.routing.names import Domain
from nextgen.kernel.routing.renamed_parents import (
    RENAMED_COPY,
    RENAMED_FROM,
    RENAMED_FROM_ID,
    RENAMED_TO,
    without_marks,
)
from nextgen.kernel.routing.shadows import shadow_source_of
from nextgen.kernel.routing.system_topics import is_system_topic

_RENAMED_DOMAINS = frozenset({Domain.PERSISTENT, Domain.NON_PERSISTENT})
_DIGEST_BYTES = 16
_OWN_NAMESPACE = "pulsar/system"


class Stage(Enum):
    """How far a rename is."""

    NEW = "nothing is changed yet, or OLD alone is marked"
    BEGUN = "NEW is there"
    DONE = "OLD is gone"


@dataclass(frozen=True, slots=True)
class Parent:
    """A tenant or namespace as its shard has it."""

    noun: str
    parent_id: str
    name: str
    properties: Mapping[str, str]
    policies: bytes
    """As they are stored."""
    policies_version: int
    version: int
    is_deleting: bool

    @property
    def copy(self) -> str:
        """Return a digest of what a rename copies."""
        content = json.dumps(sorted(without_marks(self.properties).items())).encode()
        digest = blake2b(content, digest_size=_DIGEST_BYTES)
        digest.update(self.policies)
        return digest.hexdigest()

    def is_from(self, old: Parent) -> bool:
        """Return whether this is what ``old`` is being renamed to."""
        return self.properties.get(RENAMED_FROM_ID) == old.parent_id


def check_renamable(noun: str, name: str) -> None:
    """Check that it is not the cluster's own.

    Raises:
        Refused: NOT_ALLOWED.
    """
    if name in (_OWN_NAMESPACE, _OWN_NAMESPACE.partition("/")[0]):
        raise Refused(RejectionCode.NOT_ALLOWED, f"{noun} {name} is the cluster's own")


def stage_of(noun: str, name: str, new_name: str, old: Parent | None, new: Parent | None) -> Stage:
    """Return how far the rename of ``name`` to ``new_name`` is.

    Raises:
        Refused: It may not begin, or not go on.
    """
    if name == new_name:
        raise Refused(RejectionCode.ALREADY_EXISTS, f"{noun} {name} is called that")
    if old is None:
        if new is not None and new.properties.get(RENAMED_FROM) == name:
            return Stage.DONE
        raise Refused(RejectionCode.NOT_FOUND, f"{noun} {name} does not exist")
    if new is not None and not new.is_from(old):
        raise Refused(RejectionCode.ALREADY_EXISTS, f"{noun} {new_name} already exists")
    # The last step of the rename itself begins a deletion, which may be broken off.
    is_deleting = old.is_deleting and old.properties.get(RENAMED_TO) != new_name
    for each, is_refused in ((old, is_deleting), (new, new is not None and new.is_deleting)):
        if is_refused:
            assert each is not None, "an absent parent is not being deleted"
            raise Refused(RejectionCode.NOT_ALLOWED, f"{noun} {each.name} is being deleted")
    return Stage.NEW if new is None else Stage.BEGUN


def other_target(old: Parent, new_name: str) -> str:
    """Return the other name that ``old`` is marked to get, "" if there is none."""
    target = old.properties.get(RENAMED_TO, "")
    return "" if target == new_name else target


def check_target(old: Parent, target: Parent | None, target_name: str) -> None:
    """Check that ``target`` is not what ``old`` was begun to be renamed to under another name.

    Raises:
        Refused: It is: that rename goes on.
    """
    if target is not None and target.is_from(old):
        raise Refused(
            RejectionCode.NOT_ALLOWED, f"{old.noun} {old.name} is being renamed to {target_name}"
        )


def marked_old(old: Parent, new_name: str) -> dict[str, str]:
    """Return the properties of the former name during the rename."""
    return {**without_marks(old.properties), RENAMED_TO: new_name}


def marked_new(old: Parent) -> dict[str, str]:
    """Return the properties of the new name, copied from ``old``."""
    return {
        **without_marks(old.properties),
        RENAMED_FROM: old.name,
        RENAMED_FROM_ID: old.parent_id,
        RENAMED_COPY: old.copy,
    }


def is_outdated(old: Parent, new: Parent) -> bool:
    """Return whether properties or policies of ``old`` have to be copied to ``new`` once more.

    Raises:
        Refused: Both were changed since, in different ways.
    """
    copy = new.properties.get(RENAMED_COPY)
    if old.copy in (copy, new.copy):
        return False
    if new.copy == copy:
        return True
    raise Refused(
        RejectionCode.NOT_ALLOWED,
        f"properties or policies of {old.noun} {old.name} and of {new.name} were changed during "
        f"the rename: make them the same, or delete {old.name}, which is empty",
    )


def check_grace(grace_ms: int) -> None:
    """Check for how long former names are to lead to their topics.

    Raises:
        Refused: LIMIT_EXCEEDED.
    """
    if grace_ms > RENAME_GRACE_MS_MAX:
        raise Refused(
            RejectionCode.LIMIT_EXCEEDED,
            f"a former name leads to its topic for at most {RENAME_GRACE_MS_MAX} ms, "
            f"{grace_ms} asked for",
        )


def moved_name(topic: str, new_namespace: str) -> str:
    """Return the canonical name of a topic in its namespace's new name."""
    domain, _, path = topic.partition("://")
    return f"{domain}://{new_namespace}/{path.split('/', 2)[2]}"


def why_kept(
    topic: str,
    properties: Mapping[str, str],
    former_names: Iterable[tuple[str, int]],
    new_namespace: str,
    now_ms: int,
    *,
    has_shadows: bool,
) -> str:
    """Return why a topic cannot get its new name, as far as the topic itself says it; "" if it can.

    ``former_names``: each with the time until which it leads to the topic.
    """
    if topic.partition("://")[0] not in _RENAMED_DOMAINS:
        return "is scalable"
    if is_system_topic(topic):
        return "is a system topic"
    if shadow_source_of(properties):
        return "is a shadow"
    if has_shadows:
        return "has shadows"
    leading = {name: until_ms for name, until_ms in former_names if until_ms > now_ms}
    new_name = moved_name(topic, new_namespace)
    if new_name in leading:
        return f"has the former name {new_name} until {leading[new_name]} ms"
    if len(leading) >= FORMER_NAMES_MAX:
        return f"has {len(leading)} former names"
    return ""


Needs = list[tuple[Action, Resource]]


def needs_of_parent_rename(make: Callable[[str], Resource], name: str, new_name: str) -> Needs:
    """Return what the client needs: to delete what has the old name, and to create the new one."""
    return [(Action.DELETE, make(name)), (Action.CREATE, make(new_name))]


@dataclass(slots=True)
class CheckedTo:
    """How far the topics were checked: the places in the listings of namespaces and of topics, and
    how many topics of the namespace were checked."""

    namespaces: str = ""
    topics: str = ""
    count: int = 0
    is_done: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return json.dumps([self.namespaces, self.topics, self.count])


def parse_checked(token: str) -> CheckedTo:
    """Return the place that a token names; "" is the beginning.

    Raises:
        InvalidRequest: It is no token of a rename.
    """
    if not token:
        return CheckedTo()
    try:
        namespaces, topics, count = json.loads(token)
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest("the token is none of a rename: begin without one") from None
    if not isinstance(namespaces, str) or not isinstance(topics, str) or type(count) is not int:
        raise InvalidRequest("the token is none of a rename: begin without one")
    return CheckedTo(namespaces, topics, count)
