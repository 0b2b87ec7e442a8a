"""How a replica that lost its term finds one that is at least as high (ADR 0048).

It probes every other voter for its present term. Every promise of this replica was made to one of
them, in a term that the voter still has: so the highest answer bounds the lost term. The replica
adopts the highest term with its vote spent, and only then follows a leader.

A replica that starts without any data probes in the same way. If no voter has ever had an entry,
the group is being founded, and no promise can have been lost.

A probe travels as a ``pre_vote`` for term 0, which no replica ever grants: earlier releases
answer it too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from nextgen.replication.election.overrides import HardenedSyncObj
from nextgen.replication.election.timers import Election
from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.unverified import BLANK_INDEX, UNCOVERED_INDEX, is_term_unknown
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Configuration, GroupId, NodeId
from nextgen.replication.protocol.membership import decode_configuration
from nextgen.replication.protocol.messages import (
    CONFIGURATION_FIELD,
    LOG_IS_EMPTY_FIELD,
    TERM_IS_KNOWN_FIELD,
)
from nextgen.replication.protocol.quorum import majority_of

PROBE_TERM = 0
"""Term of the ``pre_vote`` that is a probe: no replica campaigns in it."""

_QUIET_ROUNDS = 20
"""Unanswered rounds before a log line: at a first start the other nodes may open the group
later."""

_logger = logging.getLogger(__name__)


def probe_message() -> Message:
    """Return the message that requests a replica's present term."""
    return {"type": "pre_vote", "term": PROBE_TERM, "last_log_index": 0, "last_log_term": 0}


class ProbingReplica(Protocol):
    """The part of a replica that a probe needs."""

    group_id: GroupId
    node_id: NodeId
    core: HardenedSyncObj
    journal: Journal
    election: Election

    @property
    def configuration(self) -> Configuration: ...
    def send(self, node_id: NodeId, message: Message) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Answer:
    term: int
    is_term_known: bool
    is_log_empty: bool


class TermProbe:
    """The term probes of one replica, and its answers to those of others."""

    def __init__(self, replica: ProbingReplica) -> None:
        self._replica = replica
        self._answers: dict[NodeId, _Answer] = {}
        self._committed: Configuration | None = None
        self._rounds = 0
        self._reported: list[NodeId] = []

    @property
    def is_open(self) -> bool:
        """True while this replica must answer only probes.

        A learner follows its leader meanwhile, because only acknowledgements of voters count.
        """
        if not is_term_unknown(self._replica.journal.unverified_index):
            return False
        return self._replica.node_id in self._configuration.voters

    def ask(self) -> None:
        """Probe the voters that have not answered yet, or had lost their term too."""
        missing = []
        for voter in self._others:
            answer = self._answers.get(voter)
            if answer is None or not answer.is_term_known:
                missing.append(voter)
                self._ask(voter)
        self._rounds += 1
        if self._rounds > _QUIET_ROUNDS and missing != self._reported:
            self._reported = missing
            _logger.warning(
                "group %s: this replica takes no part before it has heard the terms of %s",
                self._replica.group_id,
                ", ".join(missing),
            )

    def ask_connected(self, node_id: NodeId) -> None:
        """Probe a node that has just connected, if it is a voter whose answer is missing.

        Every group hears of every node that connects: most of them are of no concern to it.
        """
        answer = self._answers.get(node_id)
        if node_id in self._others and (answer is None or not answer.is_term_known):
            self._ask(node_id)

    def on_message(self, kind: str, sender: NodeId, message: Message) -> None:
        """Handle a message that arrives while the probe is open; most are ignored."""
        match kind:
            case "pre_vote" if message["term"] == PROBE_TERM:
                self.on_question(sender)
            case "pre_vote_answer" if message["asked_term"] == PROBE_TERM:
                self._on_answer(sender, message)
            case "append":
                self._on_append(message)

    def on_question(self, sender: NodeId) -> None:
        """Answer a probe, whatever state this replica is in."""
        journal = self._replica.journal
        message: Message = {
            "type": "pre_vote_answer",
            "term": self._replica.core.term,
            "granted": False,
            "asked_term": PROBE_TERM,
            TERM_IS_KNOWN_FIELD: not is_term_unknown(journal.unverified_index),
            LOG_IS_EMPTY_FIELD: not journal.last_index
            and journal.unverified_index in (0, BLANK_INDEX),
        }
        self._replica.send(sender, message)
        if self.is_open and sender in self._others and sender not in self._answers:
            # It has just opened the group: earlier probes did not reach it.
            self._ask(sender)

    def _on_answer(self, sender: NodeId, message: Message) -> None:
        """Handle an answer; the last one that is needed ends the probe."""
        if sender not in self._others:
            return
        self._answers[sender] = _Answer(
            message["term"],
            # An earlier release answers only while it may vote, and does not report whether its log
            # is empty.
            message.get(TERM_IS_KNOWN_FIELD, True),
            message.get(LOG_IS_EMPTY_FIELD, False),
        )
        self._conclude()

    def _on_append(self, message: Message) -> None:
        """Update the members of the group: a voter that was removed need not answer.

        Only a committed configuration counts: a majority of its voters has it, and they vote for no
        candidate that lacks it.
        """
        data = message.get(CONFIGURATION_FIELD)
        if data is None:
            return
        configuration = decode_configuration(data)
        if self._configuration.index < configuration.index <= message["commit_index"]:
            self._committed = configuration
            self.ask()
            self._conclude()

    @property
    def _configuration(self) -> Configuration:
        known = self._replica.configuration
        if self._committed is not None and self._committed.index > known.index:
            return self._committed
        return known

    @property
    def _others(self) -> list[NodeId]:
        voters = self._configuration.voters
        return [voter for voter in voters if voter != self._replica.node_id]

    def _ask(self, voter: NodeId) -> None:
        self._replica.send(voter, probe_message())

    def _conclude(self) -> None:
        if not self.is_open:
            return
        others = self._others
        answers = [self._answers[voter] for voter in others if voter in self._answers]
        if len(answers) < len(others) or not others:
            # One that is missing may be a candidate that counts a vote from here.
            return
        journal, term = self._replica.journal, max(answer.term for answer in answers)
        if journal.unverified_index == BLANK_INDEX and all(a.is_log_empty for a in answers):
            self._replica.core.adopt_term(term)
            journal.set_unverified(0)
            journal.flush()
            self._replica.election.start()
            return
        known = sum(answer.is_term_known for answer in answers)
        voters = len(others) + 1
        if known < voters - majority_of(voters) + 1:
            # A majority may consist of replicas that forgot: its decisions are unknown.
            return
        self._replica.core.adopt_term(term)
        journal.set_unverified(UNCOVERED_INDEX)
        journal.flush()
        _logger.info(
            "group %s: no promise of this replica was made behind term %d; it follows, and votes "
            "when a leader has committed an entry of its own term here",
            self._replica.group_id,
            self._replica.core.term,
        )
