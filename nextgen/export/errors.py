"""Why an export does not begin, or does not go on. What was exported stays as it is."""

from __future__ import annotations

from nextgen.kernel.errors import RefusesToStart, WrongCluster


class ExportRefused(RefusesToStart):
    """The directory is not fit: foreign files, a damaged or newer manifest, another exporter."""

    reason = "EXPORT_REFUSED"


class WrongExport(WrongCluster):
    """The directory holds the log of another cluster."""

    reason = "WRONG_EXPORT"


class ExportGap(RefusesToStart):
    """The log was cut behind the export: ``first`` to ``last`` cannot be read any more."""

    reason = "EXPORT_GAP"

    def __init__(self, shard_id: int, first: int, last: int) -> None:
        super().__init__(
            f"shard {shard_id}: positions {first} to {last} are not in the log any more and not "
            f"in the export. Restore the export from a copy that has them, or go on behind them "
            f"with --accept-gap, which names the gap in the manifest"
        )
        self.shard_id = shard_id
        self.first = first
        self.last = last


class ExportStopped(RefusesToStart):
    """The disk refuses, or is full. Every file that the manifest names is whole; run again."""

    reason = "EXPORT_STOPPED"
