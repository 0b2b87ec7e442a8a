"""The simulated cluster with a secret: members prove it, and a call without proof is a failure."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client import Client
from nextgen.client.transport.proving_channel import ProvingChannel
from nextgen.kernel.limits.inbound import CHALLENGE_PERIOD_MS
from tests.simulation.test_cluster_scenarios import Told, names, places, tell
from tests.support.cluster_simulation.components import ClusterPlan
from tests.support.cluster_simulation.run import ClusterRun

PLAN = ClusterPlan(brokers=2, has_secret=True)


def test_members_prove_the_secret_to_restarted_nodes_and_once_challenges_have_ended() -> None:
    async def story(told: Told, client: Client) -> None:
        cluster = told.cluster
        for name in ("manager-1", "shard-1"):
            cluster.nodes[name].crash(power_cut=False)
            cluster.nodes[name].start()
        await asyncio.sleep(2 * CHALLENGE_PERIOD_MS / 1_000)
        before = len(cluster.proofs)
        cluster.nodes["broker-1"].crash(power_cut=False)
        cluster.nodes["broker-1"].start()
        await asyncio.sleep(10)

        await client.create_topics(names(0, 20))
        located = places(await client.lookup(names(0, 20)))

        assert "broker-1" in dict(located)
        assert len(cluster.proofs) > before

    tell(PLAN, story)


def test_member_without_proof_fails_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProvingChannel, "_proof", lambda _channel, _method: ())

    report = ClusterRun(1, faults=0, plan=PLAN).run()

    assert report.failure is not None
    assert "has no proof of" in report.failure.splitlines()[0]
