"""Stands between a sidecar and the plug-in of its broker, and changes what they send.

sidecar ──▶ down(line) ──▶ plug-in
sidecar ◀── up(line)   ◀── plug-in
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[bytes], list[bytes]]
"""Returns the lines that are passed on instead of a line: none, itself, or others."""


def unchanged(line: bytes) -> list[bytes]:
    return [line]


def without(kind: str) -> Change:
    """Return a change that swallows messages of a kind."""

    def change(line: bytes) -> list[bytes]:
        return [] if json.loads(line)["kind"] == kind else [line]

    return change


def with_fields(kind: str, **fields: Any) -> Change:
    """Return a change that sets fields of messages of a kind; of all with ""."""

    def change(line: bytes) -> list[bytes]:
        message = json.loads(line)
        if kind not in ("", message["kind"]):
            return [line]
        return [json.dumps(message | fields).encode() + b"\n"]

    return change


def behind(kind: str, sent: bytes) -> Change:
    """Return a change that adds ``sent`` behind each message of a kind."""

    def change(line: bytes) -> list[bytes]:
        return [line, sent] if json.loads(line)["kind"] == kind else [line]

    return change


def once(change: Change) -> Change:
    """Return a change that does nothing more once it has changed a line."""
    is_done = False

    def changed(line: bytes) -> list[bytes]:
        nonlocal is_done
        lines = [line] if is_done else change(line)
        is_done = is_done or lines != [line]
        return lines

    return changed


class Meddler:
    """Listens at ``path`` for a sidecar; the plug-in listens at ``broker``."""

    def __init__(self, path: Path, broker: Path) -> None:
        self.path = path
        self._broker = broker
        self.down: Change = unchanged
        self.up: Change = unchanged
        self._server = socket.socket(socket.AF_UNIX)
        self._open: list[socket.socket] = []

    def __enter__(self) -> Meddler:
        self._server.bind(str(self.path))
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.close()
        self.break_off()

    def break_off(self) -> None:
        """Close the connections there are: both sides begin anew."""
        for each in self._open:
            _close(each)
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                sidecar, _ = self._server.accept()
            except OSError:
                return
            plugin = socket.socket(socket.AF_UNIX)
            try:
                plugin.connect(str(self._broker))
            except OSError:
                sidecar.close()
                plugin.close()
                continue
            self._open += [sidecar, plugin]
            for source, target, change in (
                (sidecar, plugin, lambda line: self.down(line)),
                (plugin, sidecar, lambda line: self.up(line)),
            ):
                threading.Thread(
                    target=_pass_on, args=(source, target, change), daemon=True
                ).start()


def _pass_on(source: socket.socket, target: socket.socket, change: Change) -> None:
    with contextlib.suppress(OSError), source.makefile("rb") as lines:
        for line in lines:
            for changed in change(line):
                target.sendall(changed)
    _close(source)
    _close(target)


def _close(connection: socket.socket) -> None:
    # A thread that reads from it goes on until it is shut down.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
