"""Configurations of a group: their encoding, and the result of a change. Pure.

An entry with a configuration is a msgpack map, an entry with records a list: no other entry begins
with ``CONFIGURATION_MARK``. It counts no events.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import GROUP_MEMBERS_MAX, NODE_ID_BYTES_MAX
from nextgen.kernel.limits.raft import RAFT_NUMBER_MAX
from nextgen.replication.ports import ChangeKind, Configuration, MemberChange, NodeId

_KEY = "configuration"

CONFIGURATION_MARK: bytes = b"\x81" + msgpack.packb(_KEY)
"""The beginning of the payload of an entry with a configuration."""


def is_configuration(payload: bytes) -> bool:
    """Return whether an entry with this payload changes the group's configuration."""
    return payload.startswith(CONFIGURATION_MARK)


def encode_configuration(configuration: Configuration) -> bytes:
    """Return the payload of the entry at ``configuration.index``."""
    fields = (configuration.index, configuration.voters, configuration.learners)
    payload: bytes = CONFIGURATION_MARK + msgpack.packb(fields)
    return payload


def decode_configuration(payload: bytes) -> Configuration:
    """Return the inverse of ``encode_configuration``.

    Raises:
        ValueError: It is not a configuration that any leader makes.
    """
    if not is_configuration(payload):
        raise ValueError("not a configuration")
    try:
        fields = msgpack.unpackb(payload[len(CONFIGURATION_MARK) :])
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"not a configuration: {error}") from error
    if not isinstance(fields, list) or len(fields) != 3 or type(fields[0]) is not int:
        raise ValueError("a configuration is an index, voters and learners")
    index, voters, learners = fields[0], _nodes(fields[1]), _nodes(fields[2])
    if not 0 < index <= RAFT_NUMBER_MAX or not voters or set(voters) & set(learners):
        raise ValueError("a configuration has an index and voters that are not learners too")
    if len(voters) + len(learners) > GROUP_MEMBERS_MAX:
        raise ValueError(f"a configuration has at most {GROUP_MEMBERS_MAX} members")
    return Configuration(voters, learners, index)


def encode_if_known(configuration: Configuration | None) -> bytes:
    """Return the bytes of a configuration, none for None."""
    return b"" if configuration is None else encode_configuration(configuration)


def decode_if_known(data: bytes) -> Configuration | None:
    """Return the inverse of ``encode_if_known``; ``ValueError`` as ``decode_configuration``."""
    return decode_configuration(data) if data else None


def _nodes(value: object) -> tuple[NodeId, ...]:
    if not isinstance(value, list) or not all(isinstance(node, str) for node in value):
        raise ValueError("members are a list of node ids")
    if any(not 0 < len(node.encode()) <= NODE_ID_BYTES_MAX for node in value):
        raise ValueError(f"a node id has at most {NODE_ID_BYTES_MAX} bytes")
    if value != sorted(set(value)):
        raise ValueError("members are sorted, each once")
    return tuple(NodeId(node) for node in value)


def members_of(configuration: Configuration) -> tuple[NodeId, ...]:
    """Return voters and learners, sorted."""
    return tuple(sorted((*configuration.voters, *configuration.learners)))


def after_change(present: Configuration, change: MemberChange, *, index: int) -> Configuration:
    """Return the configuration that ``change`` makes, ``present`` itself if it is made already.

    At most one voter differs, so that majorities of both overlap (Raft thesis, 4.1).

    Raises:
        Refused: No such member, too many, or the last voter would go.
    """
    voters, learners, node_id = set(present.voters), set(present.learners), change.node_id
    match change.kind:
        case ChangeKind.ADD_LEARNER:
            if node_id in voters | learners:
                return present
            if len(voters) + len(learners) >= GROUP_MEMBERS_MAX:
                raise Refused(
                    RejectionCode.LIMIT_EXCEEDED, f"a group has at most {GROUP_MEMBERS_MAX} members"
                )
            learners.add(node_id)
        case ChangeKind.PROMOTE:
            if node_id in voters:
                return present
            if node_id not in learners:
                raise Refused(RejectionCode.NOT_FOUND, f"{node_id} is no learner of the group")
            learners.remove(node_id)
            voters.add(node_id)
        case ChangeKind.REMOVE:
            if node_id not in voters | learners:
                return present
            if voters == {node_id}:
                raise Refused(RejectionCode.NOT_ALLOWED, f"{node_id} is the last voter")
            voters.discard(node_id)
            learners.discard(node_id)
    return Configuration(tuple(sorted(voters)), tuple(sorted(learners)), index)


class ConfigurationHistory:
    """The configurations that a log holds, by the index of their entries.

    The newest one is in force; if its entry is truncated, the one before is again. ``items`` is
    replaced, never changed: any thread may read it.
    """

    def __init__(self, items: Sequence[Configuration] = ()) -> None:
        self.items = tuple(items)

    @property
    def newest(self) -> Configuration | None:
        """The configuration in force, None while the log has none."""
        return self.items[-1] if self.items else None

    def at(self, index: int) -> Configuration | None:
        """Return the configuration in force right behind entry ``index``."""
        return next((item for item in reversed(self.items) if item.index <= index), None)

    def append(self, configuration: Configuration) -> None:
        """Note that the entry at ``configuration.index`` was appended."""
        self.learn(configuration, index=configuration.index)

    def truncate_from(self, index: int) -> None:
        """Return to the configuration in force before entry ``index`` (H12)."""
        self.items = tuple(item for item in self.items if item.index < index)

    def learn(self, configuration: Configuration | None, *, index: int) -> None:
        """Note the configuration in force behind entry ``index``, None for the group's first one,
        from a peer whose log is known to agree."""
        behind = tuple(item for item in self.items if item.index > index)
        if configuration is None:
            self.items = behind
            return
        before = tuple(item for item in self.items if item.index < configuration.index)
        self.items = (*before, configuration, *behind)

    def cut_before(self, index: int) -> None:
        """Forget configurations that were in force only before entry ``index``."""
        kept = self.at(index)
        if kept is not None:
            self.items = tuple(item for item in self.items if item.index >= kept.index)

    def reset(self, configuration: Configuration | None) -> None:
        """Forget everything but ``configuration``."""
        self.items = () if configuration is None else (configuration,)
