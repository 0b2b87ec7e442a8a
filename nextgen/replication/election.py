"""When a replica campaigns, and whom it would vote for: timers, pre-vote and stickiness.

A replica asks "would you vote for me?" before it raises the term, and a replica that hears
its leader answers no; so one that was cut off disturbs nobody when it returns (H8).

Silence for ``election_ms_min .. max`` starts an election. The fast path does not wait for
it: when the leader's connection broke and its port refuses, the replicas try in the order of
their ranks, a few dozen milliseconds apart. The order is rotated by the group's number, so
that the groups a dead process led spread over the others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from nextgen.replication.config import RaftConfig
from nextgen.replication.mesh_frames import Message
from nextgen.replication.ports import GroupId, NodeId
from nextgen.replication.pysyncobj_overrides import HardenedSyncObj
from nextgen.replication.quorum import majority_of


class Election:
    """The election timer and the pre-vote of one replica."""

    def __init__(
        self,
        core: HardenedSyncObj,
        *,
        group_id: GroupId,
        node_id: NodeId,
        members: Sequence[NodeId],
        config: RaftConfig,
        random_source: random.Random,
        log_end: Callable[[], tuple[int, int]],
        send: Callable[[NodeId, Message], object],
        may_campaign: Callable[[], bool],
    ) -> None:
        self._core = core
        self._group_id = group_id
        self._node_id = node_id
        self._others = tuple(member for member in members if member != node_id)
        self._majority = majority_of(len(members))
        self._config = config
        self._random = random_source
        self._log_end = log_end
        self._send = send
        self._may_campaign = may_campaign
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._leader_heard_at: float | None = None
        self._suspect: NodeId | None = None
        self._fast_attempts = 0
        self._asked_term: int | None = None
        self._granted: set[NodeId] = set()

    def start(self) -> None:
        """Set the timer; a group of one elects itself at once."""
        if not self._others and self._may_campaign():
            self._core.campaign(transfer=False)
        config = self._config
        self._wait_ms(
            self._random.uniform(config.first_election_ms_min, config.first_election_ms_max)
        )

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_leader_alive(self) -> bool:
        """True while the leader was heard within the shortest election silence.

        Such a replica gives nobody its vote, unless the leader itself hands over.
        """
        if self._leader_heard_at is None or self._suspect is not None:
            return False
        silence_ms = (self._loop.time() - self._leader_heard_at) * 1000
        return silence_ms < self._config.election_ms_min

    def heard_from_leader(self) -> None:
        """Note a message of the present leader."""
        self._leader_heard_at = self._loop.time()
        self._suspect = None
        self._fast_attempts = 0
        self._asked_term = None
        self._wait_normally()

    def voted(self) -> None:
        """Give the candidate that got our vote the time to win."""
        self._wait_normally()

    def on_peer_unreachable(self, node_id: NodeId) -> None:
        """Take the fast path if it was the leader whose port refuses."""
        if node_id != self._core.leader_id or self._suspect is not None:
            return
        self._suspect = node_id
        self._fast_attempts = 0
        self._core.step_down(self._core.term)  # Nobody is told any more that it leads.
        self._wait_fast(rounds=0)

    def campaign_for_transfer(self) -> None:
        """Campaign without asking first: the leader hands over."""
        if self._may_campaign() and not self._core.leads:
            self._wait_normally()
            self._core.campaign(transfer=True)

    def on_pre_vote(self, sender: NodeId, message: Message) -> None:
        granted = (
            message["term"] > self._core.term
            and not self._core.leads
            and not self.is_leader_alive
            and self._core.is_up_to_date(message["last_log_term"], message["last_log_index"])
        )
        self._send(
            sender,
            {
                "type": "pre_vote_answer",
                "term": self._core.term,
                "granted": granted,
                "asked_term": message["term"],
            },
        )

    def on_pre_vote_answer(self, sender: NodeId, message: Message) -> None:
        if self._core.leads or self._asked_term is None:
            return
        if message["term"] > self._core.term:
            # It knows a later term and could never vote in ours: meet it there next time.
            self._asked_term = None
            self._core.step_down(message["term"])
            return
        if not message["granted"] or message["asked_term"] != self._asked_term:
            return
        if self._asked_term != self._core.term + 1 or not self._may_campaign():
            return
        self._granted.add(sender)
        if len(self._granted) >= self._majority:
            self._asked_term = None
            self._core.campaign(transfer=False)

    def _start_pre_vote(self) -> None:
        self._wait_again()
        if not self._may_campaign():
            return
        if not self._others:
            self._core.campaign(transfer=False)
            return
        self._asked_term = self._core.term + 1
        self._granted = {self._node_id}
        last_index, last_term = self._log_end()
        for member in self._others:
            self._send(
                member,
                {
                    "type": "pre_vote",
                    "term": self._asked_term,
                    "last_log_index": last_index,
                    "last_log_term": last_term,
                },
            )

    def _wait_again(self) -> None:
        if self._suspect is None:
            self._wait_normally()
            return
        self._fast_attempts += 1
        if self._fast_attempts < self._config.fast_election_attempts_max:
            self._wait_fast(rounds=1)
        else:
            self._suspect = None
            self._wait_normally()

    def _wait_normally(self) -> None:
        config = self._config
        self._wait_ms(self._random.uniform(config.election_ms_min, config.election_ms_max))

    def _wait_fast(self, *, rounds: int) -> None:
        """Wait for this replica's turn; ``rounds`` lets everybody have one before."""
        alive = sorted(m for m in (*self._others, self._node_id) if m != self._suspect)
        rank = (alive.index(self._node_id) - self._group_id) % len(alive)
        turns = rank + rounds * len(alive)
        config = self._config
        self._wait_ms(
            turns * config.fast_election_stagger_ms
            + self._random.uniform(0, config.fast_election_jitter_ms)
        )

    def _wait_ms(self, delay_ms: float) -> None:
        self._deadline = self._loop.time() + delay_ms / 1000
        if self._timer is not None and self._timer.when() <= self._deadline:
            return  # It fires earlier, and then waits for the rest: cheaper than a new one.
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._core.leads:
            self._wait_normally()
        elif self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._time_is_up)
        else:
            self._start_pre_vote()
