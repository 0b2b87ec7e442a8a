"""Where keys come from, written as for Pulsar: ``file:``, ``data:``, a path, or base64.

    file:///etc/keys/secret.key        the bytes of a file
    data:;base64,c2VjcmV0              the bytes themselves
    /etc/keys/secret.key               as file:
    c2VjcmV0                           base64, if there is no such file

The bytes of a file are the key as they are, as with Pulsar: a file of base64 is no secret key.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import structlog

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import KEY_FILE_BYTES_MAX, KEY_FILE_CHECK_MS

Loaded = TypeVar("Loaded")

_logger = structlog.get_logger(__name__)


def file_of(source: str) -> Path | None:
    """Return the file that ``source`` names, None if it is the key itself."""
    if source.startswith("data:"):
        return None
    if source.startswith("file:"):
        return Path(unquote(urlsplit(source).path))
    path = Path(source)
    try:
        return path if path.exists() else None
    except OSError:  # Too long for a path: base64.
        return None


def read_key(name: str, source: str) -> bytes:
    """Return the bytes of the key that setting ``name`` gives.

    Raises:
        RefusesToStart: It cannot be read. The message names the setting and never the key.
    """
    file = file_of(source)
    if file is not None:
        return _read_file(name, file)
    if source.startswith("data:"):
        kind, comma, text = source.removeprefix("data:").partition(",")
        if not comma:
            raise RefusesToStart(f"{name}: a data URL has a comma before its data")
        if kind.endswith(";base64"):
            return _of_base64(name, unquote(text))
        return unquote_to_bytes(text)
    return _of_base64(name, source)


def _read_file(name: str, file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(KEY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise RefusesToStart(f"{name}: {file} cannot be read: {error.strerror or error}") from error
    if len(content) > KEY_FILE_BYTES_MAX:
        raise RefusesToStart(f"{name}: {file} has more than {KEY_FILE_BYTES_MAX} bytes")
    return content


def _of_base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusesToStart(
            f"{name} is neither a file that exists, nor a file: or data: URL, nor base64"
        ) from error


class ReloadedKey(Generic[Loaded]):
    """What ``load`` makes of a key's bytes, made anew when the key's file changes.

    A change that cannot be used is logged once, and the earlier key stays in use. Looked at for a
    change at use, at most once in ``KEY_FILE_CHECK_MS``.
    """

    def __init__(
        self,
        name: str,
        source: str,
        load: Callable[[bytes], Loaded],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load it.

        Raises:
            RefusesToStart: It cannot be read or used.
        """
        self._name = name
        self._source = source
        self._load = load
        self._clock = clock
        self._file = file_of(source)
        self._stamp = self._present_stamp()
        self._checked_at = clock()
        self._value = load(read_key(name, source))
        self.generation = 0
        """Number of changes since the start."""

    def value(self) -> Loaded:
        """Return the key as it is at present."""
        if self._file is not None:
            now = self._clock()
            if (now - self._checked_at) * 1_000 >= KEY_FILE_CHECK_MS:
                self._checked_at = now
                self._look()
        return self._value

    def _look(self) -> None:
        stamp = self._present_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._value = self._load(read_key(self._name, self._source))
        except RefusesToStart as error:
            _logger.error("a changed key is not used", setting=self._name, reason=str(error))
            return
        self.generation += 1
        _logger.info("a key was changed", setting=self._name, file=str(self._file))

    def _present_stamp(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            status = os.stat(self._file)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
