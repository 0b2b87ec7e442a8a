"""A restore sets the settings of a backup, or names what it could not set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nextgen.backup.manifest import Manifest
from nextgen.backup.restore import RestoreRun
from nextgen.export.stores.urls import open_store
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode

SETTINGS = {"scalableTopicMaxSegments": "16", "loadBalancerEnabled": "false"}


class Taken:
    """A cluster manager that takes settings, or refuses them."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.taken: list[Mapping[str, str]] = []

    async def write(self, settings: Mapping[str, str]) -> None:
        if self.refused:
            raise Refused(RejectionCode.NOT_FOUND, self.refused)
        self.taken.append(settings)


async def restored(tmp_path: Path, taken: Taken, settings: Mapping[str, str]) -> list[str]:
    cluster: Any = SimpleNamespace(settings=taken)
    run = RestoreRun(cluster, open_store(tmp_path))
    await run._restore_settings(Manifest("one", 5, 1 << 32, 2, settings=settings))
    return run.restored.not_restored


async def test_the_settings_are_set_together(tmp_path: Path) -> None:
    taken = Taken()

    assert await restored(tmp_path, taken, SETTINGS) == []
    assert taken.taken == [SETTINGS]


async def test_a_backup_without_settings_sets_none(tmp_path: Path) -> None:
    taken = Taken()

    assert await restored(tmp_path, taken, {}) == []
    assert taken.taken == []


async def test_refused_settings_are_named_with_the_command_that_sets_them(tmp_path: Path) -> None:
    (sentence,) = await restored(tmp_path, Taken("x is no dynamic setting"), SETTINGS)

    assert sentence == (
        "settings (x is no dynamic setting): set those that are wanted with 'nextgen brokers "
        "settings set loadBalancerEnabled=false scalableTopicMaxSegments=16'"
    )
