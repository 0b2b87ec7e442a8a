#!/usr/bin/env bash
# Makes the virtual environment and installs exactly what the lock file says. Does nothing when
# that has been done for this lock already. With "pipeline": Spark as well, and a JVM for it.
# PYTHON names the interpreter; an environment of another one is made anew. Without it the one of
# the environment stays, or the first of python3.11, python3.12 and python3 that is new enough.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venv}
lock=requirements-${1:-dev}.lock

identity_of() {
  "$1" -c 'import sys; print(sys.base_prefix, sys.version)' 2>/dev/null
}

stamp_of() {
  local content
  content=$(identity_of "$venv/bin/python" && cat "$1" requirements-build.lock pyproject.toml) || return 1
  echo "$venv/.installed-$(sha256sum <<<"$content" | cut --characters=1-16)"
}

is_of_wanted_python() {
  [[ -z ${PYTHON:-} || $(identity_of "$venv/bin/python") == "$(identity_of "$PYTHON")" ]]
}

java_major() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  # openjdk version "17.0.15" 2025-04-15
  "$java" -version 2>&1 | sed --quiet 's/.* version "\([0-9]*\).*/\1/p' | head --lines=1
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3}; do
    # Asked to run, not only looked for: a version switcher's shim may stand for nothing.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

apt_install() {
  if ! command -v apt-get >/dev/null; then
    echo "setup: $1 is missing: install it with the package manager of this system" >&2
    exit 1
  fi
  if [[ $(id --user) -ne 0 ]]; then
    echo "setup: $1 is missing: run  sudo apt-get install --yes $2" >&2
    exit 1
  fi
  echo "setup: installing $2 with apt-get" >&2
  apt-get update --quiet --quiet
  # shellcheck disable=SC2086  # Several packages, on purpose.
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --quiet $2 >/dev/null
}

if [[ ${1:-} == pipeline && $(java_major || true) -lt 17 ]]; then
  # Without the right to install, what needs a JVM says which package is missing.
  if command -v apt-get >/dev/null && [[ $(id --user) -eq 0 ]]; then
    apt_install "Java 17" openjdk-17-jre-headless
  else
    echo "setup: Java 17 or newer is missing: pipelines and their tests need it." \
      "Run  sudo apt-get install --yes openjdk-17-jre-headless" >&2
  fi
fi

# What the pipelines' lock installs is all that the other one does, and more.
for one in "$lock" requirements-pipeline.lock; do
  if is_of_wanted_python && stamp=$(stamp_of "$one") && [[ -e $stamp ]]; then
    exit 0
  fi
done

python=$(find_python) || {
  if [[ -n ${PYTHON:-} ]]; then
    echo "setup: PYTHON=$PYTHON is no Python 3.11 or newer" >&2
    exit 1
  fi
  apt_install "Python 3.11 or newer" "python3 python3-venv"
  python=$(find_python) || {
    echo "setup: this system's python3 is older than 3.11: install Python 3.11 or newer" >&2
    exit 1
  }
}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
  apt_install "the venv module of $version" "python3-venv $version-venv"
fi

if ! is_of_wanted_python || ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
  "$python" -m venv --clear "$venv"
fi
echo "setup: $("$venv/bin/python" --version), installing the locked dependencies into $venv: a minute or two" >&2
export PIP_DISABLE_PIP_VERSION_CHECK=1
# What packages are built with has hashes too, so it is installed first, and pip fetches no other.
"$venv/bin/python" -m pip install --quiet --require-hashes --requirement requirements-build.lock
"$venv/bin/python" -m pip install --quiet --use-pep517 --no-build-isolation --require-hashes --requirement "$lock"
"$venv/bin/python" -m pip install --quiet --quiet --no-deps --no-build-isolation --editable .
rm --force "$venv"/.installed-*
touch "$(stamp_of "$lock")"
