"""Why an export does not begin or stops. Exported files stay as they are."""

from __future__ import annotations

from nextgen.kernel.errors import RefusesToStart, WrongCluster


class ExportRefused(RefusesToStart):
    """The directory is unusable: foreign files, a damaged or newer manifest, another exporter."""

    reason = "EXPORT_REFUSED"


class WrongExport(WrongCluster):
    """The directory holds the log of another cluster."""

    reason = "WRONG_EXPORT"


class ExportGap(RefusesToStart):
    """The log was cut after the export's end: ``first`` to ``last`` can no longer be read."""

    reason = "EXPORT_GAP"

    def __init__(self, shard_id: int, first: int, last: int) -> None:
        super().__init__(
            f"shard {shard_id}: positions {first} to {last} are not in the log any more and not "
            f"in the export. Restore the export from a copy that has them, or continue behind "
            f"them with --accept-gap, which records the gap in the manifest"
        )
        self.shard_id = shard_id
        self.first = first
        self.last = last


class ExportStopped(RefusesToStart):
    """The disk refuses, or is full. Every file in the manifest is whole. Run again later."""

    reason = "EXPORT_STOPPED"
