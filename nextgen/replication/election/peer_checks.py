"""Which well-formed messages a replica accepts: from which node, and up to which term.

A term is durable as soon as it is adopted, so one wrong number from one peer could exhaust the
terms of a whole group. A replica therefore accepts from a single peer only a term at most
``TERM_JUMP_MAX`` ahead of its own, or at the beginning of a later generation. Terms grow by one per
election, so a correct peer is further ahead only of a replica that was away for a million
elections. That replica probes the voters and accepts a term that a majority of them has reached
(ADR 0056).

Entries and snapshots are accepted from members of the group. Votes are granted to any node that the
mesh admits: a candidate may have become a member by an entry that is not here yet, and may need
this vote to lead at all (Raft thesis, 4.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Protocol

from nextgen.kernel.events.generations import GENERATION_BITS
from nextgen.kernel.limits.raft import GENERATION_JUMP_MAX, TERM_JUMP_MAX
from nextgen.replication.election.overrides import HardenedSyncObj
from nextgen.replication.election.term_probe import probe_message
from nextgen.replication.journal.journal import Journal
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Configuration, GroupId, NodeId
from nextgen.replication.protocol.membership import (
    decode_configuration,
    is_configuration,
    members_of,
)
from nextgen.replication.protocol.messages import CONFIGURATION_FIELD
from nextgen.replication.protocol.quorum import reached_by_majority

ASK_INTERVAL_S = 1.0
"""Interval of probes for a term that one peer claims."""

LOG_INTERVAL_S = 60.0
"""Interval of log lines about refused messages."""

_FROM_MEMBERS = frozenset({"append", "snapshot_chunk"})

_logger = logging.getLogger(__name__)


class CheckedReplica(Protocol):
    """The part of a replica that the checks need."""

    group_id: GroupId
    node_id: NodeId
    core: HardenedSyncObj
    journal: Journal
    commit_index: int

    @property
    def configuration(self) -> Configuration: ...
    def send(self, node_id: NodeId, message: Message) -> bool: ...


class PeerChecks:
    """See the module. ``given`` are the members that the group was opened with."""

    def __init__(self, replica: CheckedReplica, given: Configuration) -> None:
        self._replica = replica
        self._given = given
        self._loop = asyncio.get_running_loop()
        self._claimed: dict[NodeId, int] = {}  # By voters, each beyond a plausible jump.
        self._asked_at = self._logged_at = float("-inf")

    @property
    def has_claims(self) -> bool:
        """Whether a voter has claimed a term that was not believed, and taken nothing back."""
        return bool(self._claimed)

    def admits(self, kind: str, sender: NodeId, message: Message) -> bool:
        """Return whether to handle a message that passed ``check_message``."""
        if not self._is_plausible(sender, message["term"]):
            return False
        if kind not in _FROM_MEMBERS or self._is_from_member(sender, message):
            return True
        self._mention(f"{kind} of {sender}, which is no member")
        return False

    # Terms ------------------------------------------------------------------------------------

    def _is_plausible(self, sender: NodeId, term: int) -> bool:
        own_term = self._replica.core.term
        if is_plausible_jump(own_term, term):
            self._claimed.pop(sender, None)
            return True
        voters = self._replica.configuration.voters
        if not voters:
            return True  # It joins a group of which it knows nothing yet.
        self._claimed = {v: t for v, t in self._claimed.items() if v in voters}
        if sender in voters:
            self._claimed[sender] = term
        claims = {self._replica.node_id: own_term, **self._claimed}
        reached = reached_by_majority(claims.get(voter, 0) for voter in voters)
        if is_plausible_jump(max(own_term, reached), term):
            return True
        self._mention(f"term {term} of {sender}, this replica is in term {own_term}")
        self._ask(voters)
        return False

    def _ask(self, voters: Sequence[NodeId]) -> None:
        now = self._loop.time()
        if now - self._asked_at < ASK_INTERVAL_S:
            return
        self._asked_at = now
        for voter in voters:
            if voter != self._replica.node_id:
                self._replica.send(voter, probe_message())

    # Members ----------------------------------------------------------------------------------

    def _is_from_member(self, sender: NodeId, message: Message) -> bool:
        if sender == self._replica.core.leader_id:
            return True
        replica = self._replica
        newest = replica.configuration
        committed = replica.journal.configuration_at(replica.commit_index) or self._given
        known = {*members_of(self._given), *members_of(committed), *members_of(newest)}
        if newest.index > replica.commit_index:
            # This change may never be committed, and a member that it removes may lead. The one
            # before it was committed; after a restart this replica does not know that.
            before = replica.journal.configuration_at(newest.index - 1) or self._given
            known |= {*members_of(before)}
        if not known or sender in known:
            return True  # It knows no member yet: it joins a group whose log it has not received.
        # Or the sender became a member by an entry that is not here yet.
        return any(
            each.index > newest.index and sender in members_of(each) for each in _shown_by(message)
        )

    def _mention(self, what: str) -> None:
        now = self._loop.time()
        if now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            _logger.warning("group %s: not believed: %s", self._replica.group_id, what)


def is_plausible_jump(own_term: int, term: int) -> bool:
    """Return whether a replica in ``own_term`` believes a single peer that it is in ``term``."""
    if term <= own_term + TERM_JUMP_MAX:
        return True
    generations = (term >> GENERATION_BITS) - (own_term >> GENERATION_BITS)
    elections = term & ((1 << GENERATION_BITS) - 1)
    return 0 < generations <= GENERATION_JUMP_MAX and elections <= TERM_JUMP_MAX


def _shown_by(message: Message) -> Iterator[Configuration]:
    """Return the configurations in an ``append`` or a ``snapshot_chunk``."""
    if CONFIGURATION_FIELD in message:
        yield decode_configuration(message[CONFIGURATION_FIELD])
    for *_, payload in message.get("entries", ()):
        if is_configuration(payload):
            yield decode_configuration(payload)
