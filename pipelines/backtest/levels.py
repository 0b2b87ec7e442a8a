"""The resolved policy of one topic over time: service ← namespace ← topic, as the log has them.

The topic's own policy is in its shard's log, so its place among the other events is known. The
levels above may be in other logs: they hold from the time of their event on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from nextgen.kernel.governance.auto_scale_policy import (
    AutoScalePolicy,
    InvalidAutoScale,
    resolve,
)
from pipelines.backtest.model import ChangedPolicy

Service = Sequence[tuple[int, AutoScalePolicy]]
"""By the times from which on each holds, ascending from 0."""


class PolicyLevels:
    """The caller keeps ``own`` up to date, the topic's override as JSON. ``namespace`` has the
    overrides of its namespace by the times from which on they hold, ascending."""

    def __init__(self, service: Service, namespace: Sequence[tuple[int, str]] = ()) -> None:
        self.own = ""
        self._service = service
        self._service_times = [at_ms for at_ms, _ in service]
        self._namespace = [(0, ""), *namespace]
        self._namespace_times = [at_ms for at_ms, _ in self._namespace]
        self._times = sorted({*self._service_times, *self._namespace_times} - {0})

    def at(self, time_ms: int) -> AutoScalePolicy | None:
        """Return the policy at a time, None if the levels contradict each other."""
        service = self._service[bisect_right(self._service_times, time_ms) - 1][1]
        override = self._namespace[bisect_right(self._namespace_times, time_ms) - 1][1]
        try:
            return resolve(service, override, self.own)
        except InvalidAutoScale:
            return None

    def around(self, time_ms: int, slack_ms: int) -> Iterator[AutoScalePolicy | None]:
        """Yield every policy that a leader may have known at a time: other logs' changes come to
        it later than they are made, and clocks differ."""
        yield self.at(time_ms)
        for edge_ms in self._times:
            if abs(edge_ms - time_ms) <= slack_ms:
                yield self.at(edge_ms)
                yield self.at(edge_ms - 1)

    def next_change(self, after_ms: int) -> int:
        """Return when a level above the topic changes next, 0 if none does."""
        place = bisect_right(self._times, after_ms)
        return self._times[place] if place < len(self._times) else 0

    def changed(self, changed: ChangedPolicy, namespace: str) -> PolicyLevels:
        """Return the levels with what ``changed`` puts in their place, for the whole history.

        What it names of the service level holds throughout; what it does not name is as recorded.
        """
        service = [(at_ms, _over(policy, changed.service)) for at_ms, policy in self._service]
        of_namespace = self._namespace
        if namespace in changed.namespaces:
            of_namespace = [(0, changed.namespaces[namespace])]
        levels = PolicyLevels(service, of_namespace)
        levels.own = self.own
        return levels


def _over(policy: AutoScalePolicy, override: str) -> AutoScalePolicy:
    return resolve(policy, override) if override else policy
