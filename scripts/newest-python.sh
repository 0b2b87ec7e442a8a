#!/usr/bin/env bash
# Runs a short set of tests on the newest Python of this machine, or on the one that NEWEST names:
# rules, replication, a few seeds of the engine, one process. Everything else runs on the oldest that
# is supported. Free-threaded builds are left out: grpcio and google-re2 have no wheels for them.
set -euo pipefail
cd "$(dirname "$0")/.."

find_newest() {
  local candidate
  # Of version managers, pyenv alone keeps its versions where they can be found without it.
  local -a candidates=(python3.{20..12} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3)
  for candidate in "${NEWEST:-${candidates[@]}}"; do
    "$candidate" -c '
import sys, sysconfig
is_final = sys.version_info >= (3, 12) and sys.version_info.releaselevel == "final"
if is_final and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print(*(f"{part:04d}" for part in sys.version_info[:3]), sys.executable)
' 2>/dev/null || true
  done | sort --reverse | head --lines=1 | cut --delimiter=" " --fields=4-
}

newest=$(find_newest)
if [[ -z $newest && -n ${NEWEST:-} ]]; then
  echo "$NEWEST is no released Python from 3.12 on, or a free-threaded one" >&2
  exit 1
fi
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
