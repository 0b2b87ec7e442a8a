"""When a replica campaigns, and for which candidate it votes: timers, pre-vote and stickiness.

A replica sends pre-votes before it raises the term, and a replica that hears its leader refuses
them. So a replica that was partitioned deposes no leader when it returns (H8).

Silence for ``election_ms_min .. max`` starts an election, unless this process itself was paused:
then the leader gets the time to be heard. The fast path does not wait for silence: when the
leader's connection broke and its port refuses, the replicas campaign in the order of their ranks, a
few dozen milliseconds apart; so do those whose first attempt after a silence failed. The order is
rotated by the group's number, so that the groups of a dead leader's process spread over the others.

A replica that takes part in a campaign refuses pre-votes for a while, its ``vote_backoff``: a
second candidate would only undo the first. The backoff is bounded (L21), so a campaign that comes
to nothing delays a candidate that can win by one election timeout at most: it ends within
``election_ms_max``, it does not hold against a better log, and a replica whose disk is stuck
neither campaigns nor promises a vote that it could not write down.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from nextgen.replication.config import RaftConfig
from nextgen.replication.election.overrides import HardenedSyncObj
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Configuration, GroupId, NodeId
from nextgen.replication.protocol.quorum import majority_of

_EARLY_REPEATS_MAX = 3
"""Refused pre-votes that are repeated before other candidates have their turn."""


class Election:
    """The election timer and the pre-vote of one replica."""

    def __init__(
        self,
        core: HardenedSyncObj,
        *,
        group_id: GroupId,
        node_id: NodeId,
        configuration: Callable[[], Configuration],
        config: RaftConfig,
        random_source: random.Random,
        log_end: Callable[[], tuple[int, int]],
        send: Callable[[NodeId, Message], object],
        may_campaign: Callable[[], bool],
        is_disk_stuck: Callable[[], bool],
    ) -> None:
        self._core = core
        self._group_id = group_id
        self._node_id = node_id
        self._configuration = configuration
        self._config = config
        self._random = random_source
        self._log_end = log_end
        self._send = send
        self._may_campaign = may_campaign
        self._is_disk_stuck = is_disk_stuck
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        self._leader_heard_at: float | None = None
        self._suspect: NodeId | None = None
        self._fast_attempts = 0
        self._campaign_timeout_ms: float = config.fast_campaign_ms
        self._vote_backoff_until = 0.0
        self._has_waited_for_itself = False
        self._asked_term: int | None = None
        self._granted: set[NodeId] = set()

    def start(self) -> None:
        """Set the timer; a group of one elects itself at once."""
        if self._is_alone and self._may_campaign():
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
    def _is_alone(self) -> bool:
        return self._configuration().voters == (self._node_id,)

    @property
    def is_leader_alive(self) -> bool:
        """True while the leader was heard within the shortest election silence.

        Such a replica does not vote, unless the leader itself hands over.
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
        self._campaign_timeout_ms = self._config.fast_campaign_ms
        self._vote_backoff_until = 0.0
        self._has_waited_for_itself = False
        self._asked_term = None
        self._wait_normally()

    def voted(self) -> None:
        """Give the candidate that got this replica's vote time to win."""
        self._wait_normally()
        self._begin_vote_backoff(self._config.fast_campaign_ms)

    def on_peer_unreachable(self, node_id: NodeId) -> None:
        """Take the fast path if it was the leader whose port refuses."""
        if node_id != self._core.leader_id or self._suspect is not None:
            return
        self._give_up(node_id)
        self._wait_fast(rounds=0)

    def campaign_for_transfer(self) -> None:
        """Campaign without a pre-vote, because the leader hands over."""
        if self._may_campaign() and not self._core.leads:
            self._wait_normally()
            self._core.campaign(transfer=True)

    def on_pre_vote(self, sender: NodeId, message: Message) -> None:
        may_lead = self._core.is_up_to_date(message["last_log_term"], message["last_log_index"])
        granted = (
            message["term"] > self._core.term
            and not self._core.leads
            and not self.is_leader_alive
            and may_lead
            and not self._is_disk_stuck()
            and (self._loop.time() >= self._vote_backoff_until or self._is_behind(message))
        )
        if self._suspect is not None and not may_lead and not self._core.campaigns:
            # The candidate lacks entries that this replica has: waiting for its turns is useless.
            self._wait_ms(self._random.uniform(0, self._config.fast_election_jitter_ms))
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
        if sender not in self._configuration().voters:
            return  # It got no request, or is no voter any more.
        if message["term"] > self._core.term:
            # It is in a later term and could never vote in this one: campaign in its term next
            # time.
            self._asked_term = None
            self._core.step_down(message["term"])
            return
        if message["asked_term"] != self._asked_term:
            return
        if not message["granted"]:
            self._ask_again_soon()
            return
        if self._asked_term != self._core.term + 1 or not self._may_campaign():
            return
        self._granted.add(sender)
        voters = self._configuration().voters
        if len(self._granted.intersection(voters)) >= majority_of(len(voters)):
            self._asked_term = None
            self._campaign()

    def _is_behind(self, message: Message) -> bool:
        """Return whether this replica's log lacks entries of the sender's.

        Then the sender never votes for this replica, and may be the only candidate that can win.
        """
        last_index, last_term = self._log_end()
        return (message["last_log_term"], message["last_log_index"]) > (last_term, last_index)

    def _campaign(self) -> None:
        """Campaign, and set the time for votes to arrive.

        A campaign that begins earlier would undo this one. Disks may be slow, so each campaign that
        elects no leader doubles the time of the next, up to the longest election timeout.
        """
        timeout_ms = self._campaign_timeout_ms
        self._campaign_timeout_ms = min(2 * timeout_ms, self._config.election_ms_max)
        if self._suspect is not None:
            self._wait_fast(after_ms=timeout_ms)
        self._begin_vote_backoff(timeout_ms)
        self._core.campaign(transfer=False)

    def _begin_vote_backoff(self, backoff_ms: float) -> None:
        """Grant no pre-vote while a campaign is under way, unless to a better log."""
        self._vote_backoff_until = self._loop.time() + backoff_ms / 1000

    def _give_up(self, leader_id: NodeId) -> None:
        """Count the leader as dead; callers get no leader hint any more."""
        self._suspect = leader_id
        self._fast_attempts = 0
        self._campaign_timeout_ms = self._config.fast_campaign_ms
        self._core.step_down(self._core.term)

    def _start_pre_vote(self) -> None:
        self._wait_again()
        if not self._may_campaign():
            return
        if self._is_alone:
            self._core.campaign(transfer=False)
            return
        self._asked_term = self._core.term + 1
        self._granted = {self._node_id}
        last_index, last_term = self._log_end()
        for voter in self._configuration().voters:
            if voter == self._node_id:
                continue
            self._send(
                voter,
                {
                    "type": "pre_vote",
                    "term": self._asked_term,
                    "last_log_index": last_index,
                    "last_log_term": last_term,
                },
            )

    def _ask_again_soon(self) -> None:
        """Send pre-votes once more before the others have their turn: a voter that refused may not
        have noticed yet that the leader is gone. A pre-vote changes nothing anywhere."""
        if self._suspect is not None and self._fast_attempts <= _EARLY_REPEATS_MAX:
            self._wait_ms(self._config.fast_election_stagger_ms / 3)

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

    def _wait_fast(self, *, rounds: int = 0, after_ms: float = 0.0) -> None:
        """Wait for this replica's turn; with ``rounds``, after that many turns of every replica."""
        alive = sorted({*self._configuration().voters, self._node_id} - {self._suspect})
        rank = (alive.index(self._node_id) - self._group_id) % len(alive)
        turns = rank + rounds * len(alive)
        config = self._config
        self._wait_ms(
            after_ms
            + turns * config.fast_election_stagger_ms
            + self._random.uniform(0, config.fast_election_jitter_ms)
        )

    def _wait_ms(self, delay_ms: float) -> None:
        self._deadline = self._loop.time() + delay_ms / 1000
        if self._timer is not None and self._timer_at <= self._deadline:
            return  # It fires earlier, and then waits for the rest: cheaper than a new one.
        if self._timer is not None:
            self._timer.cancel()
        self._set_timer()

    def _set_timer(self) -> None:
        # Kept here, because uvloop's handle of a timer that is due at once has no time.
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._time_is_up)

    def _time_is_up(self) -> None:
        late_ms = (self._loop.time() - self._timer_at) * 1000
        self._timer = None
        if self._core.leads:
            self._wait_normally()
        elif self._loop.time() < self._deadline:
            self._set_timer()
        elif late_ms > self._config.heartbeat_ms and not self._has_waited_for_itself:
            # This process itself was paused: messages of the leader may be waiting.
            self._has_waited_for_itself = True
            self._wait_ms(self._config.heartbeat_ms)
        else:
            self._has_waited_for_itself = False
            if self._suspect is None and self._core.leader_id is not None:
                self._give_up(self._core.leader_id)
            self._start_pre_vote()
