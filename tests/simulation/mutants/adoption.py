"""Guards of namespaces that are handed over to placement by topic, and back."""

from __future__ import annotations

from brokers.adapters.plugin import peer_user
from brokers.adapters.plugin.socket_plugin import SocketPluginDialer
from nextgen.client.routing import topic_answers
from nextgen.migration.adoption import plan
from nextgen.migration.adoption.adoption import Adoption
from shards.domain import lookup
from tests.simulation.mutants.mutant import Edit, Mutant

_ADOPTION = ("tests/unit/migration/adoption/test_adoption.py",)
_PLAN = ("tests/unit/migration/adoption/test_plan.py",)
_DIRECTORY = ("tests/unit/client/routing/test_topic_directory.py",)
_LOOKUP = ("tests/unit/shards/domain/test_lookup.py",)
_SOCKET = ("tests/unit/brokers/plugin/test_socket_plugin.py",)
_PEER = ("tests/unit/brokers/plugin/test_peer_user.py",)

MUTANTS = (
    Mutant(
        "hands-over-what-was-not-claimed",
        "HO1",
        "open topics belong to their brokers by topic before the property changes",
        (Edit(Adoption, "hand_over", "await self._claim()\n", "pass\n"),),
        _ADOPTION,
    ),
    Mutant(
        "leaves-claims-where-discovery-made-them",
        "HO1",
        "a topic that discovery has assigned elsewhere is moved to where it is open",
        (Edit(Adoption, "_claim_at", "await self._move(elsewhere)", "[]"),),
        _ADOPTION,
    ),
    Mutant(
        "hands-back-where-topics-are-by-now",
        "HO1",
        "open topics are at their bundles' brokers before the property is removed",
        (Edit(Adoption, "hand_back", "await self._return()\n", "pass\n"),),
        _ADOPTION,
    ),
    Mutant(
        "does-not-wait-until-brokers-have-heard",
        "HO2",
        "a broker that has not heard of the change has not followed it",
        (Edit(Adoption, "_settle_at", "return 1", "return 0"),),
        _ADOPTION,
    ),
    Mutant(
        "claims-again-what-is-placed-by-topic",
        "HO2",
        "a run behind the change moves no topic to where it happens to be open",
        (Edit(Adoption, "_claim_at", "if found.by_topic:", "if False:"),),
        _ADOPTION,
    ),
    Mutant(
        "keeps-assignments-of-what-was-handed-back",
        "HO2",
        "assignments are given up when they decide nothing any more",
        (
            Edit(
                Adoption,
                "hand_back",
                "return await self._release()",
                "return self._handed()",
            ),
        ),
        _ADOPTION,
    ),
    Mutant(
        "hands-over-topics-without-a-place",
        "HO3",
        "one open topic that cannot be assigned keeps the namespace where it is",
        (
            Edit(
                Adoption,
                "_claim",
                "if not homeless and not any(claims.late for claims in of_brokers):",
                "if True:",
            ),
        ),
        _ADOPTION,
    ),
    Mutant(
        "hands-over-to-brokers-without-a-sidecar",
        "HO3",
        "every broker of the stock cluster has a sidecar with a session",
        (Edit(plan, "_of_brokers", "if each not in commanded", "if False"),),
        _PLAN,
    ),
    Mutant(
        "creates-a-topic-for-a-partition-of-none",
        "HO4",
        "a lookup of a partition creates no topic of the name without partition",
        (Edit(topic_answers, "may_be_created", "name.partition is None", "True"),),
        _DIRECTORY,
    ),
    Mutant(
        "assigns-the-name-of-a-topic-with-partitions",
        "HO4",
        "the name without partition of a topic that has some is assigned to nobody",
        (
            Edit(
                lookup,
                "check_served",
                "name.partition is None and topic.partitions",
                "False",
            ),
        ),
        _LOOKUP,
    ),
    Mutant(
        "greets-before-it-knows-whose-process-listens",
        "HO5",
        "a sidecar sends nothing before it knows that the listener is of its user, or root's",
        (
            Edit(
                SocketPluginDialer,
                "_attempt",
                "self._check_user(writer)\n        writer.write(self._hello)\n",
                "writer.write(self._hello)\n        self._check_user(writer)\n",
            ),
        ),
        _SOCKET,
    ),
    Mutant(
        "takes-a-process-of-any-user-for-the-broker",
        "HO5",
        "a sidecar trusts processes of its own user and of root only",
        (Edit(peer_user, "is_trusted", "user in (os.geteuid(), ROOT)", "True"),),
        _SOCKET + _PEER,
    ),
)
