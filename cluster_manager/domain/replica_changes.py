"""Changing a shard's replicas: by wishes, and by the reports of the shard's leader.

    ADD ──▶ joining ──(reported a voter)──▶ replica ◀──CANCEL── leaving ◀── REMOVE
               │                                                  │
               └──CANCEL──▶ leaving ──(reported as gone)──▶ not named

Wishes are an operator's, or of ``node_placement``. The map has the wanted replicas, the shard's log
the actual ones. A wish only names a node. The shard's leader changes its configuration accordingly,
and its report completes the wish. Until then the map names the node, because a node that no
placement names moves its replica aside.

Each change is the next version of the map, with every slot where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from cluster_manager.domain.shard_map import (
    REPLICATION_FACTOR_MAX,
    Placement,
    ShardChanged,
    ShardMap,
    State,
)
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import GROUP_MEMBERS_MAX, NODE_ID_BYTES_MAX, STORED_INTEGER_MAX


class Change(StrEnum):
    """The kinds of a wish."""

    ADD = "add"
    REMOVE = "remove"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class ChangeReplicas:
    """A wish. ``connected`` are the shard nodes that are connected at the moment.

    With ``replaces`` another replica is to be removed afterwards, so one more than usual may be
    added.
    """

    shard_id: int
    node_id: str
    change: Change
    connected: AbstractSet[str]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class TakeMembers:
    """A shard leader's report of the committed configuration in its log."""

    shard_id: int
    configuration_index: int
    voters: tuple[str, ...]
    learners: tuple[str, ...]


def decide_change(state: State, command: ChangeReplicas) -> Accepted[ShardChanged] | Rejected:
    """Add a wish to the map. Repeating a wish that is not completed yet changes nothing."""
    placement = state.placement(command.shard_id) if state is not None else None
    if state is None or placement is None:
        return _no_such_shard(command.shard_id)
    match command.change:
        case Change.ADD:
            changed = _add(placement, command.node_id, command.replaces)
        case Change.REMOVE:
            changed = _remove(placement, command.node_id, command.connected)
        case Change.CANCEL:
            changed = _cancel(placement, command.node_id)
        case _:
            assert_never(command.change)
    return changed if isinstance(changed, Rejected) else _changed(state, placement, changed)


def decide_members(state: State, command: TakeMembers) -> Accepted[ShardChanged] | Rejected:
    """Update the map to the reported configuration.

    A report of an earlier configuration than the recorded one is refused: it is late, or from a
    deposed leader. One that changes nothing but the index leaves the map unchanged.
    """
    placement = state.placement(command.shard_id) if state is not None else None
    if state is None or placement is None:
        return _no_such_shard(command.shard_id)
    mistake = _mistake_in(command)
    if mistake:
        return Rejected(RejectionCode.NOT_ALLOWED, mistake)
    if command.configuration_index < placement.configuration_index:
        return Rejected(
            RejectionCode.STALE_EPOCH,
            f"shard {command.shard_id} is at configuration {placement.configuration_index}, "
            f"the report at {command.configuration_index}",
        )
    reported = _as_reported(placement, command)
    if replace(reported, configuration_index=placement.configuration_index) == placement:
        return Accepted(())
    return _changed(state, placement, _evenly_led(state, reported))


def _add(placement: Placement, node_id: str, replaces: bool) -> Placement | Rejected:
    shard_id = placement.shard_id
    if node_id in placement.joining:
        return placement
    if node_id in placement.replicas:
        if node_id in placement.leaving:
            return Rejected(
                RejectionCode.NOT_ALLOWED,
                f"the replica of shard {shard_id} on {node_id} is being removed: cancel that first",
            )
        return Rejected(
            RejectionCode.ALREADY_EXISTS, f"{node_id} has a replica of shard {shard_id} already"
        )
    others = [other for other in placement.named if other != node_id]
    if len(others) >= REPLICATION_FACTOR_MAX + replaces:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"shard {shard_id} has {len(others)} replicas with joining and leaving ones, "
            f"at most {REPLICATION_FACTOR_MAX} are allowed",
        )
    # A node whose joining was cancelled, but that is still leaving, may be added again.
    leaving = tuple(node for node in placement.leaving if node != node_id)
    return replace(placement, joining=(*placement.joining, node_id), leaving=leaving)


def _remove(
    placement: Placement, node_id: str, connected: AbstractSet[str]
) -> Placement | Rejected:
    shard_id = placement.shard_id
    if node_id in placement.leaving:
        return placement
    if node_id in placement.joining:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"{node_id} is only joining shard {shard_id}: cancel that instead",
        )
    if node_id not in placement.replicas:
        return Rejected(RejectionCode.NOT_FOUND, f"{node_id} has no replica of shard {shard_id}")
    staying = [node for node in placement.staying if node != node_id]
    if not staying:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"{node_id} has the last replica of shard {shard_id}: add another one first",
        )
    away = [node for node in staying if node not in connected]
    if 2 * (len(staying) - len(away)) <= len(staying):
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"without {node_id} shard {shard_id} would stand still, for of the {len(staying)} "
            f"replicas that stay {', '.join(away)} is not there: start it, or add another first",
        )
    return replace(placement, leaving=(*placement.leaving, node_id))


def _cancel(placement: Placement, node_id: str) -> Placement | Rejected:
    if node_id in placement.joining:
        joining = tuple(node for node in placement.joining if node != node_id)
        return replace(placement, joining=joining, leaving=(*placement.leaving, node_id))
    if node_id in placement.replicas:
        leaving = tuple(node for node in placement.leaving if node != node_id)
        return replace(placement, leaving=leaving)
    if node_id in placement.leaving:
        return placement
    return Rejected(
        RejectionCode.NOT_FOUND, f"nothing is under way for {node_id} in shard {placement.shard_id}"
    )


def _as_reported(placement: Placement, command: TakeMembers) -> Placement:
    """Return ``placement`` with the members of the log; members without a wish are to leave."""
    voters, members = set(command.voters), {*command.voters, *command.learners}
    unwanted = sorted(members - set(placement.named))
    order = (*placement.named, *unwanted)
    gone = [node for node in placement.staying if node not in voters]
    return Placement(
        placement.shard_id,
        replicas=tuple(node for node in order if node in voters),
        # The removal of this replica was cancelled too late: let it join again.
        joining=tuple(node for node in (*placement.joining, *gone) if node not in voters),
        leaving=tuple(node for node in (*placement.leaving, *unwanted) if node in members),
        configuration_index=command.configuration_index,
        has_led=placement.has_led,
    )


def _evenly_led(shard_map: ShardMap, placement: Placement) -> Placement:
    """Return ``placement`` with a staying replica first, so that leaders stay spread evenly.

    The order changes only if another one is more even.
    """
    staying = placement.staying
    if not staying:
        return placement
    first_replicas = Counter(
        each.staying[0]
        for each in shard_map.placements
        if each.shard_id != placement.shard_id and each.staying
    )
    chosen = min(staying, key=lambda node: (first_replicas[node], staying.index(node)))
    if placement.replicas[0] in staying and (
        first_replicas[placement.replicas[0]] <= first_replicas[chosen]
    ):
        return placement
    others = [node for node in placement.replicas if node != chosen]
    return replace(placement, replicas=(chosen, *others))


def _changed(state: ShardMap, before: Placement, after: Placement) -> Accepted[ShardChanged]:
    if after == before:
        return Accepted(())
    return Accepted((ShardChanged(state.version + 1, (after,)),))


def _mistake_in(command: TakeMembers) -> str:
    members = (*command.voters, *command.learners)
    if not 0 <= command.configuration_index <= STORED_INTEGER_MAX:
        return f"{command.configuration_index} is no index of a configuration"
    if not command.voters or len(set(members)) != len(members):
        return f"shard {command.shard_id} reports members {members}: that is no configuration"
    if len(members) > GROUP_MEMBERS_MAX:
        return f"shard {command.shard_id} reports more than {GROUP_MEMBERS_MAX} members"
    if any(not 0 < len(node.encode()) <= NODE_ID_BYTES_MAX for node in members):
        return f"shard {command.shard_id} reports a member without a proper id"
    return ""


def _no_such_shard(shard_id: int) -> Rejected:
    return Rejected(RejectionCode.NOT_FOUND, f"there is no shard {shard_id} in the shard map")
