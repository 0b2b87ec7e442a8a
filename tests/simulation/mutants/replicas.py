"""The guards of a node's replicas on disk: what is opened, put aside, stored and verified."""

from __future__ import annotations

from shards.adapters import raft_groups
from shards.adapters.raft_groups import RaftGroups
from tests.simulation.mutants.mutant import Edit, Mutant

_GROUPS = ("tests/unit/shards/adapters/test_raft_groups.py",)

MUTANTS = (
    Mutant(
        "groups-verify-what-is-not-here",
        "D13",
        "a replica that is not here is not verified",
        (Edit(RaftGroups, "verify", "if verification is None:", "if False:"),),
        _GROUPS,
    ),
    Mutant(
        "groups-verify-two-at-once",
        "D13",
        "a node verifies one replica at a time",
        (Edit(RaftGroups, "verify", "if self._verifying.locked():", "if False:"),),
        _GROUPS,
    ),
    Mutant(
        "groups-put-aside-what-is-open",
        "L16",
        "a replica that is open is not put aside",
        (
            Edit(
                RaftGroups,
                "put_aside",
                "shard_ids - {group.engine.group_id for group in self._host.groups}",
                "shard_ids",
            ),
        ),
        _GROUPS,
    ),
    Mutant(
        "groups-end-by-data-that-stays",
        "L16",
        "data that cannot be moved stays and ends nothing",
        (
            Edit(
                RaftGroups,
                "put_aside",
                "except OSError as error:",
                "except ZeroDivisionError as error:",
            ),
        ),
        _GROUPS,
    ),
    Mutant(
        "groups-put-aside-what-is-not-there",
        "L16",
        "what is not there is not put aside",
        (Edit(RaftGroups, "_put_aside", "if not storage.is_directory(directory):", "if False:"),),
        _GROUPS,
    ),
    Mutant(
        "groups-keep-every-removed-replica",
        "L16",
        "one removed replica of a shard is kept",
        (Edit(RaftGroups, "_put_aside", "storage.remove_tree(aside)", "pass"),),
        _GROUPS,
    ),
    Mutant(
        "groups-move-without-a-sync",
        "L16",
        "what was put aside is not back after a power cut",
        (
            Edit(
                RaftGroups,
                "_put_aside",
                'storage.sync_directory(self._data_directory, label="group.put_aside")',
                "pass",
            ),
        ),
        _GROUPS,
    ),
    Mutant(
        "groups-write-what-is-stored",
        "D5",
        "what is stored already needs no space",
        (Edit(RaftGroups, "_store", "read_content(self._storage, path) != data", "True"),),
        _GROUPS,
    ),
    Mutant(
        "groups-end-by-a-full-disk",
        "D5",
        "a full disk refuses what was to be stored",
        (
            Edit(
                RaftGroups,
                "store",
                "except OSError as error:",
                "except ZeroDivisionError as error:",
            ),
        ),
        _GROUPS,
    ),
    Mutant(
        "groups-trust-damaged-knowledge",
        "D11",
        "what was stored and cannot be read is refused by its name",
        (
            Edit(
                raft_groups,
                "known_cluster",
                "except DecodeError as error:",
                "except ZeroDivisionError as error:",
            ),
        ),
        _GROUPS,
    ),
    Mutant(
        "groups-expect-knowledge",
        "D5",
        "a node that never stored anything begins without",
        (Edit(raft_groups, "known_cluster", "if data is None:", "if False:"),),
        _GROUPS,
    ),
)
