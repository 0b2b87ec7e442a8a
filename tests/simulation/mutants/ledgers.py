"""The guards of brokers' ledgers: who may acknowledge, what is durable, what counts as damage."""

from __future__ import annotations

from brokers.adapters.ledger.disk_ledger import DiskLedger
from brokers.adapters.ledger.format import files, measuring
from brokers.adapters.ledger.format.scanning import Scan
from brokers.adapters.ledger.ownership.takeover import Takeover
from brokers.adapters.ledger.writing.append_file import AppendFile
from brokers.adapters.ledger.writing.writers import Writer, _Share
from tests.simulation.mutants.mutant import Edit, Mutant

_UNIT = "tests/unit/brokers/ledger/"
_ROUNDS = (_UNIT + "test_rounds.py",)
_SYNCS = (_UNIT + "test_ledger_syncs.py",)
_SEEDS = (("cluster", 20),)

MUTANTS = (
    Mutant(
        "owner-acknowledges-behind-a-fence",
        "W1, W2",
        "an owner looks for the fence of a later epoch before it acknowledges",
        (Edit(_Share, "look", "if self.queue.files.is_fenced():", "if False:"),),
        _ROUNDS,
        _SEEDS,
    ),
    Mutant(
        "owner-looks-for-a-fence-before-its-sync",
        "W1",
        "an owner looks for a fence behind the sync of what it acknowledges",
        (
            Edit(
                Writer,
                "write_round",
                "(_Share.write, _Share.sync, _Share.look)",
                "(_Share.write, _Share.look, _Share.sync)",
            ),
        ),
        _ROUNDS,
        _SEEDS,
    ),
    Mutant(
        "owner-acknowledges-before-its-sync",
        "W3",
        "what is acknowledged was synced before",
        (
            Edit(
                AppendFile,
                "sync",
                "sync_file(self._storage, self._open(), label=self._label)",
                "self._open()",
            ),
        ),
        _SYNCS,
        _SEEDS,
    ),
    Mutant(
        "takeover-does-not-sync-its-predecessor",
        "W8",
        "what a seal counts was synced before",
        (Edit(measuring, "sync_files", "sync_file(storage, handle, label=label)", "pass"),),
        _SYNCS,
        _SEEDS,
    ),
    Mutant(
        "takeover-measures-what-a-failed-sync-left",
        "W8",
        "behind a failed sync of its predecessor's files a takeover measures the medium (e28651d)",
        (
            Edit(
                measuring,
                "sync_files",
                "sync_file(storage, handle, label=label)",
                "storage.sync(handle, label=label)",
            ),
        ),
        _SYNCS,
        _SEEDS,
    ),
    Mutant(
        "owner-believes-the-cache-behind-a-failed-sync",
        "W5, W8",
        "bytes that a failed sync did not write are dropped from the system's cache",
        (Edit(files, "sync_file", "storage.drop_cache(handle)", "pass"),),
        _SYNCS,
        _SEEDS,
    ),
    Mutant(
        "takeover-does-not-fence-its-predecessor",
        "W2",
        "every lower epoch is fenced before it is measured and sealed",
        (
            Edit(
                Takeover,
                "_fence",
                "create_fence(directory.storage, directory.fence(lower),"
                " directory.claim(self._epoch))",
                "pass",
            ),
        ),
        (_UNIT + "test_takeover.py",),
        _SEEDS,
    ),
    Mutant(
        "scan-takes-damage-for-a-torn-tail",
        "W3, W4",
        "an unreadable place in front of what was durable is damage, and no torn tail",
        (Edit(Scan, "to_the_end", "if not self._was_durable(self.end, durable):", "if True:"),),
        (_UNIT + "test_scanning.py",),
        _SEEDS,
    ),
    Mutant(
        "ledger-that-closes-is-looked-at",
        "W10",
        "no round follows the last one of a ledger that is being closed",
        (Edit(DiskLedger, "look_for_fence", "if self._released is None:", "if True:"),),
        _ROUNDS,
        _SEEDS,
    ),
)
