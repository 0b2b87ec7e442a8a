"""The guards of the Raft port: which peers are accepted, and which of their messages."""

from __future__ import annotations

from nextgen.replication.election import peer_checks
from nextgen.replication.election.peer_checks import PeerChecks
from nextgen.replication.election.timers import Election
from nextgen.replication.mesh.connection import PeerConnection
from nextgen.replication.mesh.handshake import Handshake
from nextgen.replication.mesh.mesh import Mesh
from nextgen.replication.protocol import messages as raft_messages
from tests.simulation.mutants.mutant import Edit, Mutant

_UNIT = "tests/unit/replication/"
_HANDSHAKE = (_UNIT + "mesh/test_handshake.py",)
_CHECKS = (_UNIT + "election/test_peer_checks.py",)
_MESSAGES = (_UNIT + "protocol/test_messages.py",)

MUTANTS = (
    Mutant(
        "port-takes-any-proof",
        "L24",
        "a peer proves the cluster's secret",
        (
            Edit(
                Handshake,
                "_is_proven",
                "return hmac.compare_digest(proof, self._proof(direction, dialer_id, acceptor_id))",
                "return True",
            ),
        ),
        _HANDSHAKE,
    ),
    Mutant(
        "port-takes-peers-without-proof",
        "L24",
        "a peer that proves nothing is refused where the secret is required",
        (
            Edit(
                Handshake,
                "_checked",
                "secret is not None and secret.is_required and not is_proven",
                "False",
            ),
        ),
        _HANDSHAKE,
    ),
    Mutant(
        "port-proves-without-direction",
        "L24",
        "a proof of one direction is worth nothing in the other",
        (Edit(Handshake, "_proof", "(_PURPOSE, direction,", "(_PURPOSE, '',"),),
        _HANDSHAKE,
    ),
    Mutant(
        "port-proves-without-the-nonce-of-the-acceptor",
        "L24",
        "a proof is worth nothing on another connection",
        (Edit(Handshake, "_proof", "dialer_nonce, acceptor_nonce)", "dialer_nonce, b'')"),),
        _HANDSHAKE,
    ),
    Mutant(
        "port-takes-any-node-id",
        "L24",
        "without a secret a node that is not known is refused",
        (Edit(Mesh, "check_peer", "if node_id not in self._addresses:", "if False:"),),
        _HANDSHAKE,
    ),
    Mutant(
        "port-reads-large-frames-of-strangers",
        "L24",
        "a frame before the peer is known is small",
        (
            Edit(
                PeerConnection,
                "__init__",
                "FrameReader(MESH_HELLO_FRAME_BYTES_MAX)",
                "FrameReader()",
            ),
        ),
        _HANDSHAKE,
    ),
    Mutant(
        "port-keeps-all-that-say-nothing",
        "L24",
        "connections whose peers are not known are bounded",
        (
            Edit(
                Mesh,
                "connection_opened",
                "if len(self._handshakes) > MESH_HANDSHAKES_MAX:",
                "if False:",
            ),
        ),
        _HANDSHAKE,
    ),
    Mutant(
        "believes-any-term",
        "L23",
        "a single peer is believed a bounded number of terms ahead",
        (
            Edit(
                PeerChecks,
                "_is_plausible",
                "if is_plausible_jump(own_term, term):",
                "if True:",
            ),
        ),
        _CHECKS,
    ),
    Mutant(
        "believes-no-majority",
        "L23",
        "a term that a majority of the voters has reached is believed",
        (
            Edit(
                PeerChecks,
                "_is_plausible",
                "is_plausible_jump(max(own_term, reached), term)",
                "False",
            ),
        ),
        _CHECKS,
    ),
    Mutant(
        "believes-one-claim-for-a-majority",
        "L23",
        "the claim of one voter is not that of a majority",
        (
            Edit(
                PeerChecks,
                "_is_plausible",
                "reached_by_majority(claims.get(voter, 0) for voter in voters)",
                "max(claims.values())",
            ),
        ),
        _CHECKS,
    ),
    Mutant(
        "believes-no-later-generation",
        "L22, L23",
        "a survivor that was promoted is believed",
        (
            Edit(
                peer_checks,
                "is_plausible_jump",
                "return 0 < generations <= GENERATION_JUMP_MAX and elections <= TERM_JUMP_MAX",
                "return False",
            ),
        ),
        _CHECKS,
    ),
    Mutant(
        "follows-strangers",
        "L24",
        "entries and snapshots are taken from members",
        (
            Edit(
                PeerChecks,
                "admits",
                "kind not in _FROM_MEMBERS or self._is_from_member(sender, message)",
                "True",
            ),
        ),
        _CHECKS,
    ),
    Mutant(
        "follows-nobody-its-log-does-not-name",
        "L24",
        "a leader is believed that shows the later configuration that names it",
        (
            Edit(
                PeerChecks,
                "_is_from_member",
                "each.index > newest.index and sender in members_of(each)",
                "False",
            ),
        ),
        _CHECKS,
    ),
    Mutant(
        "refuses-members-that-an-uncommitted-change-removes",
        "L24",
        "a member that is removed by a change that may not be committed may lead",
        (Edit(PeerChecks, "_is_from_member", "newest.index > replica.commit_index", "False"),),
        _CHECKS,
    ),
    Mutant(
        "raises-its-term-by-answers-of-strangers",
        "L15",
        "an answer to a pre-vote is one of a voter",
        (
            Edit(
                Election,
                "on_pre_vote_answer",
                "if sender not in self._configuration().voters:",
                "if False:",
            ),
        ),
        _CHECKS,
    ),
    Mutant(
        "takes-numbers-without-bound",
        "L23",
        "every number of a message has a bound",
        (
            Edit(
                raft_messages,
                "_check_fields",
                "not 0 <= number <= number_max",
                "not 0 <= number",
            ),
        ),
        _MESSAGES,
    ),
)
