"""Faults are counted each time, and each reason is logged once."""

from __future__ import annotations

from structlog.testing import capture_logs

from brokers.ports.plugin import PluginFault
from brokers.service.sidecar.plugin_faults import PluginFaults
from nextgen.kernel.limits.stream import PLUGIN_FAULT_REPEATED_MS


def test_a_reason_that_lasts_is_one_line_and_counted_each_time() -> None:
    faults = PluginFaults(lambda: 0)
    with capture_logs() as lines:
        for _ in range(3):
            faults.note(PluginFault.SECOND_SIDECAR, "broker-7 commands it")

    assert faults.counts == {PluginFault.SECOND_SIDECAR: 3}
    assert [(each["kind"], each["why"]) for each in lines] == [
        ("second_sidecar", "broker-7 commands it")
    ]


def test_another_reason_and_another_fault_are_lines_of_their_own() -> None:
    faults = PluginFaults(lambda: 0)
    with capture_logs() as lines:
        faults.note(PluginFault.REFUSED, "a")
        faults.note(PluginFault.REFUSED, "b")
        faults.note(PluginFault.CLOSED, "b")

    assert len(lines) == 3


def test_reasons_that_take_turns_are_a_line_each() -> None:
    faults = PluginFaults(lambda: 0)
    with capture_logs() as lines:
        for number in range(6):
            faults.note(PluginFault.UNKNOWN_TOPIC, f"of namespace {number % 2}")

    assert len(lines) == 2


def test_a_reason_that_lasts_is_logged_again_after_a_while() -> None:
    times_ms = iter(range(0, 2 * PLUGIN_FAULT_REPEATED_MS, 1_000))
    faults = PluginFaults(lambda: next(times_ms))
    with capture_logs() as lines:
        for _ in range(2 * PLUGIN_FAULT_REPEATED_MS // 1_000):
            faults.note(PluginFault.REFUSED, "a")

    assert len(lines) == 2
