from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from brokers.adapters.ledger.format import scanning
from brokers.adapters.ledger.format.files import DISK
from brokers.adapters.ledger.format.measuring import opened
from brokers.adapters.ledger.format.records import Kind, Record, encode
from brokers.adapters.ledger.format.scanning import Scan
from brokers.ports.ledger import LedgerDamaged

SALT = 5
RESERVED_BYTES = 4 * 1024 * 1024


def bodies(found: list[Record]) -> list[bytes]:
    return [bytes(record.body) for record in found]


class File:
    """A file that rounds were written to, one fsync after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = bytearray()

    def write_round(self, *texts: bytes) -> None:
        durable = len(self.content)
        for text in texts:
            since_durable = len(self.content) - durable
            self.content += encode(Kind.STATE, text, salt=SALT, since_durable=since_durable)

    def scan(self, *, limit: int | None = None, durable: int = 0) -> tuple[list[bytes], int]:
        self.path.write_bytes(self.content)
        with opened(DISK, str(self.path)) as handle:
            scan = Scan(
                DISK, handle, str(self.path), start=0, salt=SALT, limit=limit, piece_bytes=64
            )
            return bodies(list(scan.to_the_end(durable))), scan.end


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "file")


def test_records_are_read_however_they_lie_in_the_pieces(file: File) -> None:
    texts = [b"x" * length for length in (0, 1, 20, 63, 64, 65, 500, 3, 0)]
    file.write_round(*texts)

    assert file.scan() == (texts, len(file.content))


def test_reserved_space_is_the_end(file: File) -> None:
    file.write_round(b"a", b"b")
    end = len(file.content)
    file.content += bytes(5_000)

    assert file.scan() == ([b"a", b"b"], end)


def test_an_empty_file_has_no_records(file: File) -> None:
    assert file.scan() == ([], 0)


def test_nothing_behind_a_limit_exists(file: File) -> None:
    file.write_round(b"a")
    end = len(file.content)
    file.write_round(b"b", b"c")

    assert file.scan(limit=end) == ([b"a"], end)
    assert file.scan(limit=end + 5) == ([b"a"], end)


def test_a_torn_round_is_cut_wherever_it_is_torn(file: File) -> None:
    file.write_round(b"first")
    file.write_round(b"a" * 40, b"b" * 40, b"c" * 40)
    whole = bytes(file.content)
    ends = [file.scan()[1]]
    for cut in range(len(whole)):
        # What was written of the last round, and nothing or reserved space behind it.
        for rest in (b"", bytes(len(whole) - cut)):
            file.content = bytearray(whole[:cut] + rest)
            found, end = file.scan()
            assert found == [b"first", b"a" * 40, b"b" * 40, b"c" * 40][: len(found)]
            assert end <= cut
            ends.append(end)
    assert len(set(ends)) == 5


def test_a_round_whose_pages_came_out_of_order_is_cut(file: File) -> None:
    file.write_round(b"first")
    end = len(file.content)
    file.write_round(b"a" * 40, b"b" * 40)
    file.content[end : end + 50] = bytes(50)

    assert file.scan() == ([b"first"], end)


@pytest.mark.parametrize("junk", [b"\x00", b"\xff"])
def test_damage_in_front_of_a_later_round_is_no_torn_tail(file: File, junk: bytes) -> None:
    file.write_round(b"first")
    damaged_at = len(file.content)
    file.write_round(b"a" * 40)
    damaged_to = len(file.content)
    file.write_round(b"b" * 40)
    file.content[damaged_at:damaged_to] = junk * (damaged_to - damaged_at)

    with pytest.raises(LedgerDamaged, match=rf"file: no valid record at byte {damaged_at}"):
        file.scan()


def test_what_is_known_to_have_been_durable_is_never_cut(file: File) -> None:
    file.write_round(b"first")
    end = len(file.content)
    file.write_round(b"a" * 40)
    known = len(file.content)
    file.content[-1] ^= 1

    assert file.scan() == ([b"first"], end)
    with pytest.raises(LedgerDamaged, match=f"byte {end}"):
        file.scan(durable=known)


@pytest.fixture
def sparse(tmp_path: Path) -> Callable[[bool], Path]:
    """Makes a file with a round, megabytes that were reserved and, if wished, a later round."""

    def make(is_proof: bool) -> Path:
        path = tmp_path / "sparse"
        first = encode(Kind.STATE, b"first", salt=SALT)
        later = encode(Kind.STATE, b"later", salt=SALT, since_durable=1_000)
        with path.open("wb") as file:
            file.write(first)
            os.posix_fallocate(file.fileno(), len(first), RESERVED_BYTES)
            if is_proof:
                os.pwrite(file.fileno(), later, RESERVED_BYTES // 2)
        return path

    return make


def test_reserved_space_that_was_not_written_is_not_read(
    sparse: Callable[[bool], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(sparse(False))
    lengths: list[int] = []
    pread = os.pread

    def reads(handle: int, length: int, offset: int) -> bytes:
        lengths.append(length)
        return pread(handle, length, offset)

    monkeypatch.setattr(os, "pread", reads)
    with opened(DISK, path) as handle:
        scan = Scan(DISK, handle, path, start=0, salt=SALT, piece_bytes=4_096)
        assert bodies(list(scan.to_the_end())) == [b"first"]

    assert sum(lengths) < RESERVED_BYTES // 10


@pytest.mark.parametrize("can_tell", [True, False])
def test_a_later_round_behind_reserved_space_proves_damage(
    sparse: Callable[[bool], Path], monkeypatch: pytest.MonkeyPatch, can_tell: bool
) -> None:
    if not can_tell:

        def refuse(*_arguments: int) -> int:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(os, "lseek", refuse)
    for is_proof in (False, True):
        path = str(sparse(is_proof))
        with opened(DISK, path) as handle:
            reading = Scan(DISK, handle, path, start=0, salt=SALT).to_the_end()
            assert bytes(next(reading).body) == b"first"
            if is_proof:
                with pytest.raises(LedgerDamaged, match="no valid record"):
                    next(reading)
            else:
                assert not list(reading)


@pytest.mark.parametrize("block_bytes", [3, 4, 7, 64])
def test_proof_is_found_however_it_lies_in_the_blocks(
    file: File, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(scanning, "_BLOCK_BYTES", block_bytes)
    file.write_round(b"first")
    damaged_at = len(file.content)
    file.write_round(b"a" * 40)
    file.content[damaged_at] ^= 1
    for length in range(block_bytes + 1):
        content = bytes(file.content)
        file.content += bytes(length)
        assert file.scan()[1] == damaged_at
        file.write_round(b"later")
        with pytest.raises(LedgerDamaged, match=f"byte {damaged_at}"):
            file.scan()
        file.content = bytearray(content)


def test_a_file_that_grows_under_a_scan_is_read_on(tmp_path: Path) -> None:
    """The place is empty when it is read, and whole when what follows it is read."""
    path = tmp_path / "file"
    rounds = [encode(Kind.STATE, text, salt=SALT) for text in (b"a", b"b", b"c")]
    path.write_bytes(rounds[0])
    with opened(DISK, str(path)) as handle:
        scan = Scan(DISK, handle, str(path), start=0, salt=SALT)
        reading = scan.to_the_end()
        assert bytes(next(reading).body) == b"a"
        # The scan has come to the end of its piece; two rounds follow before it looks behind it.
        looked = scan._was_durable

        def grows(place: int, durable: int) -> bool:
            if os.path.getsize(path) == len(rounds[0]):
                path.write_bytes(b"".join(rounds))
            return looked(place, durable)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Scan, "_was_durable", lambda _, place, durable: grows(place, durable))
            assert bodies(list(reading)) == [b"b", b"c"]
