"""Each task that must go on is ended in turn in a simulated cluster, which serves on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

import pytest

from nextgen.client import Client
from nextgen.tasks.background import failures
from nextgen.tasks.timeouts import timeout
from tests.simulation.test_cluster_scenarios import Told, names, tell
from tests.support.cluster_simulation.components import ClusterPlan
from tests.support.processes.kept_tasks import (
    break_kept,
    has_begun_again,
    kept_tasks,
    names_of_kept_tasks,
)

KEPT_ELSEWHERE = {
    "attached_consumers": "test_consumers_stay_attached_after_the_task_that_renews_has_ended",
    "event_loop_lag": "test_measuring_goes_on_after_its_task_ended",
    "idle_stock_units": "test_the_search_for_idle_topics_goes_on_after_its_task_ended",
    "layout_change": "test_a_task_that_fails_by_a_bug_begins_again",
    "log_rotation": "test_rotation_goes_on_after_its_task_ended",
    "mesh_dialer": "test_a_dialer_that_ended_dials_again",
    "metadata_existence_checks": "test_an_existence_check_outlives_the_task_that_makes_it",
    "segment_removal": "test_a_removal_whose_task_fails_by_a_bug_begins_again",
    "source_feed": "test_a_source_is_followed_again_after_the_task_for_it_ended",
    "topic_lists": "test_lists_follow_their_namespace_after_a_task_of_theirs_ended",
    "topic_lists_kept": "test_lists_follow_their_namespace_after_a_task_of_theirs_ended",
    "worker": "test_a_worker_whose_keeper_ended_comes_back",
}
"""Kept tasks that a simulated cluster does not have, and the tests that break them."""


@pytest.mark.timeout(300)
def test_each_kept_task_that_ends_is_begun_again_and_the_cluster_serves_on():
    """A new kept task is broken here alone, or has to be added to ``KEPT_ELSEWHERE``."""
    killed: set[str] = set()

    async def story(told: Told, client: Client) -> None:
        topics = iter(names(0, 100))
        async with aclosing(client.watch_topics(prefix=names(0, 1)[0])) as changes:
            watching = asyncio.ensure_future(anext(changes))
            while left := sorted(kept_tasks().keys() - killed):
                broken = break_kept(left[0])
                killed.add(left[0])

                await told.until(partial(has_begun_again, left[0], broken), 15)
                await serve(client, next(topics))
            failures.clear()  # Those were made here; a run with any other has failed.
            watching.cancel()
            await asyncio.wait((watching,))

    async def serve(client: Client, topic: str) -> None:
        async with timeout(30):
            await client.create_topics([topic])
            while not (await client.lookup([topic]))[0].is_found:
                await asyncio.sleep(0.1)

    tell(ClusterPlan(brokers=2, broker_units=200), story)
    assert names_of_kept_tasks() == killed | KEPT_ELSEWHERE.keys()
