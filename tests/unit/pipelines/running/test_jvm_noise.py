"""What a JVM says at every start is kept from the terminal, and nothing else."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import subprocess, sys
from pipelines.running.jvm_noise import without_noise
with without_noise():
    child = subprocess.Popen(
        [sys.executable, "-c", '''
import sys
sys.stdin.read()
print("WARNING: Using incubator modules: jdk.incubator.vector", file=sys.stderr)
print("26/11/23 WARN NativeCodeLoader: Unable to load", file=sys.stderr)
print("java.lang.OutOfMemoryError: Java heap space", file=sys.stderr)
print("an end without a line break", end="", file=sys.stderr)
'''],
        stdin=subprocess.PIPE,
    )
print("ours", file=sys.stderr, flush=True)
child.communicate(b"")
import threading
for thread in threading.enumerate():
    if thread.daemon:
        thread.join(30)
"""


def test_noise_is_dropped_and_errors_of_the_child_and_our_own_lines_arrive() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )

    assert ended.stderr == (
        "ours\njava.lang.OutOfMemoryError: Java heap space\nan end without a line break"
    )
