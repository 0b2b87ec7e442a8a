"""Why a policy's value is refused."""

from __future__ import annotations


class PolicyRefused(Exception):
    """A value makes no sense, or names what does not exist. ``status`` is Pulsar's HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
