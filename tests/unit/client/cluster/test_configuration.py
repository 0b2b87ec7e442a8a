"""Changes of settings: by name, together, and beside those of others."""

from __future__ import annotations

import pytest

from nextgen.client.cluster.configuration import change_settings, overrides
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1.events_pb2 import ConfigurationSet, Setting

HELD = ConfigurationSet(version=3, settings=[Setting(name="loadBalancerEnabled", value="false")])


class Held:
    """A cluster manager that takes the next version of anything. ``others`` are changes that come
    in between a read and a write."""

    def __init__(self, held: ConfigurationSet = HELD, others: int = 0) -> None:
        self.held = held
        self.others = others
        self.written = 0

    async def get(self) -> ConfigurationSet:
        return self.held

    async def set(self, configuration: ConfigurationSet) -> ConfigurationSet:
        self.written += 1
        if self.others:
            self.others -= 1
            added = Setting(name=f"scalableTopicOther{self.others}", value="1")
            settings = [*self.held.settings, added]
            self.held = ConfigurationSet(version=self.held.version + 1, settings=settings)
        if configuration.version != self.held.version + 1:
            raise Refused(RejectionCode.VERSION_MISMATCH, "others were set")
        self.held = configuration
        return configuration


async def test_settings_are_changed_together_and_others_kept():
    calls = Held()
    changes = {"scalableTopicMaxSegments": "8", "scalableTopicMinSegments": "4"}

    changed = await change_settings(calls, changes)

    assert changed.version == 4
    assert overrides(changed) == {"loadBalancerEnabled": "false", **changes}


async def test_a_setting_is_given_its_default_again():
    changed = await change_settings(Held(), {"loadBalancerEnabled": None})

    assert overrides(changed) == {}


@pytest.mark.parametrize(
    "changes", [{"loadBalancerEnabled": "false"}, {"scalableTopicMaxSegments": None}, {}]
)
async def test_what_is_so_already_is_not_written(changes):
    calls = Held()

    assert await change_settings(calls, changes) == HELD
    assert calls.written == 0


async def test_a_change_is_made_again_beside_those_of_others():
    calls = Held(others=4)

    changed = await change_settings(calls, {"scalableTopicMaxSegments": "8"})

    assert len(overrides(changed)) == 6
    assert calls.written == 5


async def test_changes_of_others_without_end_are_a_conflict():
    with pytest.raises(Refused) as refused:
        await change_settings(Held(others=5), {"scalableTopicMaxSegments": "8"})

    assert refused.value.code == RejectionCode.VERSION_MISMATCH


async def test_a_name_that_is_no_setting_is_refused_before_anything_is_written():
    calls = Held()

    for text in ("1", None):
        with pytest.raises(Refused, match="brokerName is no dynamic setting"):
            await change_settings(calls, {"brokerName": text, "scalableTopicMaxSegments": "8"})

    assert calls.written == 0


async def test_an_override_of_a_later_release_can_be_taken_away():
    held = ConfigurationSet(version=1, settings=[Setting(name="ofALaterRelease", value="1")])

    assert overrides(await change_settings(Held(held), {"ofALaterRelease": None})) == {}
