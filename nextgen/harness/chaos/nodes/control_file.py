"""A control file: memory that a node process shares with the process that injects faults.

    bytes  0..7    "NGCHAOS1"
           8..15   delay of each fsync, microseconds            written by the injector
          16..23   offset of the wall clock, nanoseconds        written by the injector
          24..31   number of delayed fsyncs                     written by the node
          32..39   number of clock readings with an offset      written by the node

Little endian. Each number has one writer. The counts prove that a fault took effect. They are not
exact, because two threads of a node may count at the same time.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from nextgen.kernel.errors import RefusesToStart

MAGIC = b"NGCHAOS1"
CONTROL_FILE_BYTES = 4_096
DELAY_MS_MAX = 60_000
OFFSET_MS_MAX = 366 * 24 * 3_600_000
_UNSIGNED = struct.Struct("<Q")
_SIGNED = struct.Struct("<q")
_DELAY_AT = 8
_OFFSET_AT = 16
_DELAYED_AT = 24
_SHIFTED_AT = 32


class ControlFile:
    """One node's file. ``create`` it for a node, ``open`` it in the node."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content

    @staticmethod
    def create(path: Path) -> ControlFile:
        """Create a file without faults, in place of an existing one."""
        path.write_bytes(MAGIC.ljust(CONTROL_FILE_BYTES, b"\0"))
        return ControlFile.open(path)

    @staticmethod
    def open(path: Path) -> ControlFile:
        """Map a file that ``create`` made.

        Raises:
            RefusesToStart: It is not a control file.
        """
        try:
            with path.open("r+b") as file:
                content = mmap.mmap(file.fileno(), CONTROL_FILE_BYTES)
        except (OSError, ValueError) as error:
            raise RefusesToStart(f"{path} is no control file: {error}") from error
        if content[: len(MAGIC)] != MAGIC:
            content.close()
            raise RefusesToStart(f"{path} is no control file: it begins with something else")
        return ControlFile(content)

    def close(self) -> None:
        self._content.close()

    @property
    def fsync_delay_us(self) -> int:
        return self._read(_UNSIGNED, _DELAY_AT)

    @property
    def clock_offset_ns(self) -> int:
        return self._read(_SIGNED, _OFFSET_AT)

    @property
    def fsyncs_delayed(self) -> int:
        return self._read(_UNSIGNED, _DELAYED_AT)

    @property
    def clock_readings_shifted(self) -> int:
        return self._read(_UNSIGNED, _SHIFTED_AT)

    def delay_fsyncs(self, delay_ms: int) -> None:
        """Delay each fsync of the node by ``delay_ms``; 0 ends it."""
        assert 0 <= delay_ms <= DELAY_MS_MAX, f"a delay of {delay_ms} ms"
        _UNSIGNED.pack_into(self._content, _DELAY_AT, delay_ms * 1_000)

    def shift_clock(self, offset_ms: int) -> None:
        """Shift the node's wall clock by ``offset_ms``; 0 ends it."""
        assert abs(offset_ms) <= OFFSET_MS_MAX, f"an offset of {offset_ms} ms"
        _SIGNED.pack_into(self._content, _OFFSET_AT, offset_ms * 1_000_000)

    def count_delayed(self) -> None:
        _UNSIGNED.pack_into(self._content, _DELAYED_AT, self.fsyncs_delayed + 1)

    def count_shifted(self) -> None:
        _UNSIGNED.pack_into(self._content, _SHIFTED_AT, self.clock_readings_shifted + 1)

    def _read(self, layout: struct.Struct, place: int) -> int:
        (value,) = layout.unpack_from(self._content, place)
        return int(value)
