"""The state of a scale run on disk, by which a run that was killed goes on where it stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

STATE = "state.json"


class RunState:
    """``directory``/state.json: what the run was asked for, chunks loaded, phases done.

    Raises:
        SystemExit: The directory has a run that was asked for something else.
    """

    def __init__(self, directory: Path, asked: dict[str, Any]) -> None:
        self._path = directory / STATE
        self.chunks_done = 0
        self.load_s = 0.0
        self.rss_mib: list[float] = []
        """Resident memory of the largest shard node behind each chunk."""
        self.phases: dict[str, Any] = {}
        if self._path.exists():
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            if stored["asked"] != asked:
                raise SystemExit(f"{self._path} is of another run: {stored['asked']}")
            self.chunks_done = stored["chunks_done"]
            self.load_s = stored["load_s"]
            self.rss_mib = stored["rss_mib"]
            self.phases = stored["phases"]
        self._asked = asked

    def chunk_loaded(self, seconds: float, rss_mib: float) -> None:
        """Note one more chunk, the time since the one before in which this run loaded, and the
        memory behind it."""
        self.chunks_done += 1
        self.rss_mib.append(rss_mib)
        self.load_s += seconds
        self._save()

    def record(self, phase: str, result: Any) -> None:
        """Note that a phase is done; it is not repeated."""
        self.phases[phase] = {"result": result, "at": round(time.time())}
        self._save()

    def result_of(self, phase: str) -> Any:
        """Return what was recorded of a phase, None if it is to be done."""
        found = self.phases.get(phase)
        return None if found is None else found["result"]

    def _save(self) -> None:
        content = {
            "asked": self._asked,
            "chunks_done": self.chunks_done,
            "load_s": round(self.load_s, 3),
            "rss_mib": self.rss_mib,
            "phases": self.phases,
        }
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        draft.replace(self._path)
