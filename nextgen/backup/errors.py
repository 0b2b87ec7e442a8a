"""Why a backup or a restore does not begin or ends early. A repetition of the command goes on."""

from __future__ import annotations

from nextgen.kernel.errors import RefusesToStart, Unavailable


class BackupUnusable(RefusesToStart):
    """The directory is no whole backup of a known format, or not empty where one is to be made."""

    reason = "BACKUP_UNUSABLE"


class RestoreRefused(RefusesToStart):
    """The cluster is not empty, or has another restore under way. Nothing was changed."""

    reason = "RESTORE_REFUSED"


class CutNotFound(Unavailable):
    """The events that were read do not close the cut: read on, and try again."""

    reason = "CUT_NOT_FOUND"
