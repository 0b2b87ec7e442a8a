"""When is a lookup answer wrong?"""

from __future__ import annotations

import pytest

from nextgen.harness.load.answer_check import Verdict, judge
from protos.nextgen.v1.broker_service_pb2 import Serving
from protos.nextgen.v1.inventory_pb2 import LookupAnswer

ANSWER = LookupAnswer(topic="persistent://a/b/c", broker_id="broker-1", epoch=5, session_id="s-1")


@pytest.mark.parametrize(
    ("serving", "session_id", "verdict"),
    [
        (Serving(serves=True, epoch=5), "s-1", Verdict.RIGHT),
        (Serving(serves=True, epoch=6), "s-1", Verdict.RIGHT),
        (Serving(serves=True, epoch=4), "s-1", Verdict.WRONG),
        (Serving(epoch=5, new_epoch=6, new_broker_id="broker-2"), "s-1", Verdict.MOVED),
        (Serving(epoch=4, new_epoch=5, new_broker_id="broker-2"), "s-1", Verdict.WRONG),
        (Serving(), "s-1", Verdict.WRONG),
        (Serving(), "s-2", Verdict.OUTDATED),
        (Serving(), "", Verdict.OUTDATED),
    ],
)
def test_the_verdict_on_what_a_broker_says(serving: Serving, session_id: str, verdict: Verdict):
    assert judge(ANSWER, serving, session_id) is verdict
