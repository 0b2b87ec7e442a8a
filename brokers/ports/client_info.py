"""What is known of a connected client, for statistics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """One client's connection."""

    address: str
    """host:port of the client's end."""
    version: str
    """The client's own name and version, shortened; empty if it gave none."""
    role: str = ""
    """Who it has proven to be; empty if nobody asked."""

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.address.rpartition(":")[0]
