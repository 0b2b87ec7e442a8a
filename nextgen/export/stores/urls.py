"""Chooses the store for a URL: a local directory, or a file system of pyarrow or fsspec."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nextgen.export.stores.store import Store


def is_local(url: str) -> bool:
    """Return whether ``url`` is a path, or file://."""
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> Path:
    """Return the directory of a local ``url``."""
    text = unquote(urlsplit(url).path) if url.startswith("file://") else url
    return Path(text).expanduser().absolute()


def open_store(url: str | os.PathLike[str]) -> Store:
    """Return the store of ``url``, without accessing it.

    Raises:
        ExportRefused: No library for it is installed.
    """
    text = os.fspath(url)
    if is_local(text):
        from nextgen.export.stores.local import LocalStore

        return LocalStore(local_path(text))
    from nextgen.export.stores.objects import ObjectStore, file_system_of

    return ObjectStore(text, *file_system_of(text))
