"""Finds the JVM that Spark runs on, and checks its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from pipelines.errors import JobRefused

JAVA_VERSION_MIN = 17
"""Spark 4 runs on Java 17 and later."""

VERSION_TIMEOUT_S = 20
"""Time-out for a JVM to print its version."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

_ADVICE = (
    "install it (Debian and Ubuntu: sudo apt-get install openjdk-17-jre-headless; Fedora: sudo dnf "
    "install java-17-openjdk-headless; macOS: brew install openjdk@17) or let JAVA_HOME name it"
)


def check_java() -> str:
    """Return the path of a JVM that Spark can use.

    Raises:
        JobRefused: There is none. The message names a package to install.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java here"
        raise JobRefused(f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {where}: {_ADVICE}")
    try:
        result = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JobRefused(f"{java} does not say its version within {VERSION_TIMEOUT_S} s") from error
    match = _VERSION.search(result.stderr + result.stdout)
    if match is None:
        raise JobRefused(f"{java} does not say its version: {result.stderr.strip()[:200]}")
    if int(match.group(1)) < JAVA_VERSION_MIN:
        raise JobRefused(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, {java} is {match.group(1)}: {_ADVICE}"
        )
    return java
