"""What must hold after every step of every process. Each invariant is a class.

``after_step(node)`` is called when a callback of that node's process has run; ``sent`` for
each message as it leaves. They look at the engine from outside, and at the simulated disk
where the engine's own word must not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nextgen.replication.config import RaftConfig
from nextgen.replication.election.term_probe import PROBE_TERM
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import NodeId
from tests.simulation.engine.history import (
    Fact,
    History,
    durable_state,
    require,
)
from tests.simulation.engine.states import configuration_known_by
from tests.support.simulated.node import SimNode

SLACK_MS = 60.0
"""On top of a bound in time: timers fire in turns of the loop, messages take some."""


class Observed(Protocol):
    """The simulation as its invariants see it."""

    history: History
    config: RaftConfig

    @property
    def now(self) -> float: ...
    def node(self, node_id: NodeId) -> SimNode: ...
    def voters_of(self, node: SimNode) -> tuple[NodeId, ...]: ...


class Invariant:
    """One thing that must hold."""

    def __init__(self, world: Observed) -> None:
        self.world = world
        self.history = world.history

    def looks_at(self, occasion: str) -> bool:
        """Return whether it does anything in ``after_step``, ``sent`` or ``arrived``."""
        return getattr(type(self), occasion) is not getattr(Invariant, occasion)

    def after_step(self, node: SimNode) -> None:
        """``node`` is up and has done something."""

    def sent(self, sender: NodeId, target: NodeId, message: Message) -> None:
        """``message`` leaves ``sender``."""

    def arrived(self, sender: NodeId, target: NodeId, message: Message) -> None:
        """``target`` is about to get ``message``."""

    def restarted(self, node: SimNode) -> None:
        """``node`` is a new process, or the one it was with its clock or its life interrupted."""


class OneLeaderPerTerm(Invariant):
    """Raft paper, 5.2. Also: a leader has the votes of a majority of its voters."""

    def after_step(self, node: SimNode) -> None:
        assert node.log is not None
        core = node.log.engine.core
        if not core.leads:
            return
        term, node_id = core.term, node.node_id
        known = self.history.leaders.get(term)
        if known == node_id:
            return
        require(known is None, f"{known} and {node_id} lead term {term}")
        self.history.leaders[term] = node_id
        voters = self.world.voters_of(node)
        votes = [v for v in voters if self.history.votes.get((v, term)) == node_id]
        if len(voters) > 1:
            require(
                len(votes) > len(voters) // 2,
                f"{node_id} leads term {term} with the votes of {votes} out of {voters}",
            )


class LeaderHasEverything(Invariant):
    """Leader completeness (Raft paper, 5.4.3): the log of a leader has all that is committed."""

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._looked_at: dict[int, NodeId] = {}

    def after_step(self, node: SimNode) -> None:
        assert node.log is not None
        core, journal = node.log.engine.core, node.log.engine.journal
        if not core.leads or self._looked_at.get(core.term) == node.node_id:
            return
        self._looked_at[core.term] = node.node_id
        index, committed = self.history.committed_index, self.history.committed
        while index and committed[index].term > core.term:
            index -= 1  # A candidate that slept may win a term that is over: others go on.
        require(
            journal.last_index >= index,
            f"{node.node_id} leads term {core.term} and lacks the committed entry {index}",
        )
        if journal.base_index < index:
            require(
                journal.term_of(index) == self.history.committed[index].term,
                f"{node.node_id} leads term {core.term} and has another entry {index}",
            )


class CommittedEntriesNeverChange(Invariant):
    """Raft paper, 5.4.3: all nodes commit the same entry at an index; positions are dense."""

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._seen: dict[NodeId, int] = {}

    def restarted(self, node: SimNode) -> None:
        self._seen.pop(node.node_id, None)

    def after_step(self, node: SimNode) -> None:
        assert node.log is not None
        engine = node.log.engine
        commit_index, journal = engine.commit_index, engine.journal
        require(
            commit_index <= journal.last_index,
            f"{node.node_id} has committed {commit_index} and its log ends at {journal.last_index}",
        )
        seen = self._seen.get(node.node_id, journal.base_index)
        if commit_index <= seen:
            return
        for index in range(max(seen, journal.base_index) + 1, commit_index + 1):
            self._commit(node.node_id, index, Fact.of_journal(journal.entry(index)))
        self._seen[node.node_id] = commit_index

    def _commit(self, node_id: NodeId, index: int, fact: Fact) -> None:
        history = self.history
        known = history.committed.setdefault(index, fact)
        require(
            known == fact, f"{node_id} has committed another entry {index}: {fact}, not {known}"
        )
        history.committed_index = max(history.committed_index, index)


class OnlyOwnTermsAreCounted(Invariant):
    """A leader commits by counting only entries of its own term (Raft paper, 5.4.2)."""

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._led: dict[NodeId, tuple[int, int]] = {}

    def restarted(self, node: SimNode) -> None:
        self._led.pop(node.node_id, None)

    def after_step(self, node: SimNode) -> None:
        assert node.log is not None
        engine = node.log.engine
        term, index = engine.core.term, engine.commit_index
        if not engine.core.leads:
            self._led.pop(node.node_id, None)
            return
        before = self._led.get(node.node_id)
        self._led[node.node_id] = term, index
        if before is None or before[0] != term or before[1] == index:
            return
        require(
            engine.journal.term_of(index) == term,
            f"{node.node_id} leads term {term} and commits up to entry {index} of term "
            f"{engine.journal.term_of(index)}",
        )


class LogsMatch(Invariant):
    """Log matching (Raft paper, 5.3): an index and a term name one entry, with one past."""

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._entries: dict[tuple[int, int], tuple[Fact, int]] = {}
        self._seen: dict[NodeId, tuple[int, int]] = {}

    def restarted(self, node: SimNode) -> None:
        self._seen.pop(node.node_id, None)

    def after_step(self, node: SimNode) -> None:
        assert node.log is not None
        journal = node.log.engine.journal
        end = journal.last_index, journal.last_term
        seen = self._seen.get(node.node_id, (journal.base_index, 0))
        if end == seen:
            return
        self._seen[node.node_id] = end
        # After a cut the first entry that is there again may lie before what was seen.
        first = min(seen[0], journal.last_index) if end[1] == seen[1] else engine_first(node)
        for index in range(max(first, journal.base_index) + 1, journal.last_index + 1):
            entry = journal.entry(index)
            known = (Fact.of_journal(entry), journal.term_of(index - 1))
            before = self._entries.setdefault((index, entry.term), known)
            require(before == known, f"{node.node_id} has another entry {index} of {entry.term}")


def engine_first(node: SimNode) -> int:
    """Return the entry behind which a log may have changed: what is committed has not."""
    assert node.log is not None
    return min(node.log.engine.commit_index, node.log.engine.journal.last_index)


class VotesAreKept(Invariant):
    """One vote in a term, over crashes, durable before it is sent (Raft paper, 5.1)."""

    def sent(self, sender: NodeId, target: NodeId, message: Message) -> None:
        kind, term = message["type"], message.get("term", 0)
        if kind == "request_vote":
            candidate = sender
        elif kind == "response_vote":
            candidate = target
        else:
            return
        known = self.history.votes.setdefault((sender, term), candidate)
        require(
            known == candidate,
            f"{sender} votes for {known} and for {candidate} in term {term}",
        )
        state = durable_state(self.world.node(sender).disk, sender)
        require(
            state is not None
            and (state.hard_term > term or (state.hard_term, state.voted_for) == (term, candidate)),
            f"{sender} tells of a vote in term {term} that is not on its disk",
        )


class NobodyIsDisturbed(Invariant):
    """A campaign follows a majority's pre-votes; a follower that hears its leader grants none."""

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._heard: dict[NodeId, tuple[NodeId, float]] = {}
        self._voters: dict[tuple[NodeId, int], set[tuple[NodeId, ...]]] = {}
        """What a candidate knew as its voters when pre-votes for a term came in."""

    def arrived(self, sender: NodeId, target: NodeId, message: Message) -> None:
        if message["type"] == "append":
            node = self.world.node(target)
            if node.log is not None and message["term"] >= node.log.engine.core.term:
                self._heard[target] = (sender, self.world.now)
        elif message["type"] == "pre_vote_answer" and message["granted"]:
            key = target, message["asked_term"]
            self.history.pre_votes.setdefault(key, set()).add(sender)
            if self.world.node(target).log is not None:
                voters = self.world.voters_of(self.world.node(target))
                self._voters.setdefault(key, set()).add(voters)

    def unreachable(self, node_id: NodeId, peer: NodeId) -> None:
        """``peer`` was reported to ``node_id`` as dead."""
        heard = self._heard.get(node_id)
        if heard is not None and heard[0] == peer:
            del self._heard[node_id]

    def restarted(self, node: SimNode) -> None:
        self._heard.pop(node.node_id, None)

    def sent(self, sender: NodeId, target: NodeId, message: Message) -> None:
        kind = message["type"]
        if kind == "request_vote" and not message["transfer"]:
            self._check_campaign(sender, message["term"])
        elif kind == "pre_vote_answer" and message["granted"]:
            self._check_silence(sender, target, "would vote")

    def _check_campaign(self, sender: NodeId, term: int) -> None:
        # A request leaves when it is durable: its voters are those of when the campaign began.
        voters = self.world.voters_of(self.world.node(sender))
        known = {voters} | self._voters.get((sender, term), set())
        granted = {sender} | self.history.pre_votes.get((sender, term), set())
        require(
            any(len(granted & set(each)) > len(each) // 2 for each in known),
            f"{sender} campaigns in term {term}, asked for by {sorted(granted)} of {voters}",
        )

    def _check_silence(self, sender: NodeId, target: NodeId, does: str) -> None:
        heard = self._heard.get(sender)
        if heard is None:
            return
        silence_ms = (self.world.now - heard[1]) * 1000
        require(
            silence_ms >= self.world.config.election_ms_min - SLACK_MS,
            f"{sender} {does} for {target}, {silence_ms:.0f} ms after it heard {heard[0]}",
        )


@dataclass(slots=True)
class _Leadership:
    """One that is watched: when its voters were heard, and until when it needs no look."""

    term: int
    configuration: int
    began: float
    heard: dict[NodeId, float]
    sure_until: float


class NoLeaderWithoutMajority(Invariant):
    """A leader that hears no majority stops answering within its bound (Raft thesis, 6.2)."""

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._watched: dict[NodeId, _Leadership] = {}
        self._bound_s = (world.config.heartbeat_ms + SLACK_MS) / 1000

    def restarted(self, node: SimNode) -> None:
        # A process that slept finds out with its next heartbeat, not before.
        self._excuse(self._watched.get(node.node_id))

    def arrived(self, sender: NodeId, target: NodeId, message: Message) -> None:
        if message["type"] == "append_answer":
            watched = self._watched.get(target)
            if watched is not None and message["term"] == watched.term:
                watched.heard[sender] = self.world.now

    def after_step(self, node: SimNode) -> None:
        assert node.log is not None
        engine = node.log.engine
        core = engine.core
        if not core.leads:
            return
        node_id, now, term = node.node_id, self.world.now, core.term
        index = configuration_known_by(engine)
        watched = self._watched.get(node_id)
        if watched is None or watched.term != term:
            watched = self._watched[node_id] = _Leadership(term, -1, now, {}, 0.0)
        if watched.configuration != index:
            # Other voters: nobody had to hear them before, and the next heartbeat finds out.
            watched.configuration, watched.began, watched.sure_until = index, now, 0.0
            self._excuse(watched)
        if now < watched.sure_until:
            return
        voters = self.world.voters_of(node)
        heard, began = watched.heard, watched.began
        times = sorted((now if v == node_id else heard.get(v, began) for v in voters), reverse=True)
        contact_s = self.world.config.leader_contact_ms_max / 1000
        watched.sure_until = times[len(voters) // 2] + contact_s + self._bound_s
        require(
            watched.sure_until >= now or not node.log.is_leader,
            f"{node_id} leads term {term} and has not heard a majority of {voters} in time",
        )

    def _excuse(self, watched: _Leadership | None) -> None:
        if watched is not None:
            watched.sure_until = max(watched.sure_until, self.world.now + self._bound_s)


class WhoForgotKeepsQuiet(Invariant):
    """A replica that lost a part of its log neither votes nor asks for votes; one that lost its
    term acknowledges nothing either."""

    def sent(self, sender: NodeId, target: NodeId, message: Message) -> None:
        log = self.world.node(sender).log
        if log is None or not log.engine.journal.unverified_index:
            return
        kind = message["type"]
        votes = kind in ("pre_vote", "request_vote", "response_vote")
        if kind == "pre_vote" and message["term"] == PROBE_TERM:
            votes = False
        require(
            not log.engine.probe.is_open or kind != "append_answer",
            f"{sender} does not know its term and sends an {kind} to {target}",
        )
        require(
            not votes and not (kind == "pre_vote_answer" and message["granted"]),
            f"{sender} is unverified and sends a {kind} to {target}",
        )


class TermsNeverFall(Invariant):
    """Term and vote survive a crash (Raft paper, 5.1): a new life begins where the last ended."""

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._voted_in: dict[NodeId, int] = {}

    def sent(self, sender: NodeId, target: NodeId, message: Message) -> None:
        if message["type"] in ("request_vote", "response_vote"):
            self._voted_in[sender] = max(self._voted_in.get(sender, 0), message["term"])

    def after_step(self, node: SimNode) -> None:
        assert node.log is not None
        engine = node.log.engine
        voted_in = self._voted_in.get(node.node_id, 0)
        # One that lost its disk has forgotten, knows that it has, and does not vote.
        require(
            engine.core.term >= voted_in or bool(engine.journal.unverified_index),
            f"{node.node_id} is in term {engine.core.term} and has voted in {voted_in}",
        )


class OneChangeAtATime(Invariant):
    """Configurations (Raft thesis, 4.1): a leader has at most one that is not committed, each
    differs from the one before by one voter at most, and the first of a term waits until an
    entry of that term is committed."""

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._last: dict[NodeId, tuple[int, tuple[NodeId, ...]]] = {}

    def restarted(self, node: SimNode) -> None:
        self._last.pop(node.node_id, None)

    def after_step(self, node: SimNode) -> None:
        assert node.log is not None
        engine = node.log.engine
        if engine.leadership is None:
            self._last.pop(node.node_id, None)
            return
        index, voters = configuration_known_by(engine), self.world.voters_of(node)
        before = self._last.get(node.node_id)
        self._last[node.node_id] = index, voters
        if before is None or before[0] == index:
            return
        require(
            before[0] <= engine.commit_index,
            f"{node.node_id} begins change {index} before change {before[0]} is committed",
        )
        require(
            len(set(before[1]) ^ set(voters)) <= 1,
            f"{node.node_id} changes the voters {before[1]} to {voters} at once",
        )
        require(
            engine.commit_index >= engine.leadership.first_index,
            f"{node.node_id} changes members before it has committed an entry of its term",
        )


INVARIANTS: tuple[type[Invariant], ...] = (
    OneLeaderPerTerm,
    LeaderHasEverything,
    CommittedEntriesNeverChange,
    OnlyOwnTermsAreCounted,
    LogsMatch,
    VotesAreKept,
    NobodyIsDisturbed,
    WhoForgotKeepsQuiet,
    TermsNeverFall,
    OneChangeAtATime,
)
