"""When is an answer of the Pulsar protocol wrong?"""

from __future__ import annotations

import pytest

from nextgen.harness.load.answer_check import Verdict
from nextgen.harness.load.pulsar.answer_check import KnownBroker, UrlChecker, judge_url
from nextgen.harness.perf.pulsar.lookup import LookupLoad
from nextgen.kernel.errors import InvalidRequest
from protos.nextgen.v1.broker_service_pb2 import Serving


@pytest.mark.parametrize(
    ("serving", "is_same_session", "verdict"),
    [
        (Serving(serves=True, epoch=5), True, Verdict.RIGHT),
        (Serving(serves=True, epoch=5), False, Verdict.RIGHT),
        (Serving(epoch=5, new_epoch=6, new_broker_id="broker-2"), True, Verdict.MOVED),
        (Serving(), True, Verdict.WRONG),
        (Serving(epoch=5), True, Verdict.WRONG),
        (Serving(), False, Verdict.OUTDATED),
    ],
)
def test_the_verdict_on_a_url(serving: Serving, is_same_session: bool, verdict: Verdict):
    assert judge_url(serving, is_same_session=is_same_session) is verdict


async def test_a_url_of_no_broker_is_wrong_and_a_broker_that_is_gone_outdates_the_answer():
    gone = KnownBroker("pulsar://127.0.0.1:2", "127.0.0.1:1", "s-1")
    checker = UrlChecker([gone])

    await checker.check({"a": gone.pulsar_url, "b": "pulsar://127.0.0.1:3"})
    await checker.close()

    assert checker.counts == {Verdict.OUTDATED: 1, Verdict.WRONG: 1}
    assert checker.wrong == ["b at pulsar://127.0.0.1:3: no broker has this URL"]


def load(topics: int, *, connections: int = 8, workers: int = 1) -> LookupLoad:
    return LookupLoad(
        topics=topics,
        seconds=1,
        connections=connections,
        in_flight=64,
        workers=workers,
        moving_percent=0,
        is_partition_metadata=False,
    )


def test_the_windows_need_twice_as_many_topics():
    load(1_024).check()

    with pytest.raises(InvalidRequest, match="too few"):
        load(1_023).check()


def test_a_generator_without_a_connection_is_refused():
    load(10_000, connections=2, workers=2).check()

    with pytest.raises(InvalidRequest, match="cannot be shared"):
        load(10_000, connections=1, workers=2).check()
