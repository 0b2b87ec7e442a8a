#!/usr/bin/env bash
# Runs a short set of tests on the newest Python of this machine: rules, replication, a few seeds of
# the engine, one process. Everything else runs on the oldest that is supported.
set -euo pipefail
cd "$(dirname "$0")/.."

find_newest() {
  local candidate
  # Of version managers, pyenv alone keeps its versions where they can be found without it.
  for candidate in python3.{20..12} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
    "$candidate" -c '
import shutil, sys
if sys.version_info >= (3, 12) and sys.version_info.releaselevel == "final":
    print(*(f"{part:04d}" for part in sys.version_info[:3]), sys.executable)
' 2>/dev/null || true
  done | sort --reverse | head --lines=1 | cut --delimiter=" " --fields=4-
}

newest=$(find_newest)
if [[ -z $newest ]]; then
  echo "skipped: no Python newer than 3.11 is installed here, so nothing ran on a newer one" >&2
  exit 0
fi
export PYTHON=$newest VENV=.venv-newest
scripts/setup.sh
echo "on $("$VENV/bin/python" --version):"
"$VENV/bin/python" -m pytest --quiet --numprocesses="${PROCESSES:-2}" --dist=loadfile -m "not slow" \
  tests/unit/kernel tests/unit/tasks tests/unit/replication tests/unit/runtime \
  tests/simulation/test_engine_simulation.py tests/integration/shards/test_failover.py
