"""Processes that begin with everything imported: forks of a process that imports it once.

    process = start_warm("shards", arguments, environment=os.environ, stderr=log)
    ended = run_warm("nextgen", ["topics", "list"], environment=os.environ, timeout_s=60)

``python -m shards`` imports for a second of processor time before its first line runs, and the
tests start hundreds of such processes. A fork costs a fiftieth. What runs is the same module
with the same arguments, environment and files, in a process of its own that dies of the signals
that are sent to it. Tests of the start itself (flags of the interpreter, ``PYTHONPATH``) start a
new interpreter, and elsewhere than on Linux all do.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from nextgen.cli.local.cluster import child_environment

IS_AVAILABLE = sys.platform == "linux"

ROOT = Path(__file__).parents[3]
REQUEST_BYTES_MAX = 128 * 1024
NUMBER = struct.Struct("=i")
ENTRIES = ("shards", "cluster_manager", "discovery", "brokers", "nextgen")
"""What may be started: ``python -m`` of these."""

TREES = ("discovery.bootstrap", "nextgen.cli", "nextgen.client")
"""Packages whose modules are imported only when a process runs."""


class WarmProcess:
    """A fork of the server: what tests use of ``subprocess.Popen``."""

    def __init__(self, reply: int, stdin: IO[bytes] | None) -> None:
        self._reply = reply
        self.stdin = stdin
        content = os.read(reply, NUMBER.size)
        assert content, "the fork server has ended"
        self.pid: int = NUMBER.unpack(content)[0]
        self.returncode: int | None = None

    def fileno(self) -> int:
        """Return what becomes readable when the process ends."""
        return self._reply

    def poll(self) -> int | None:
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal.

        Raises:
            TimeoutExpired: It goes on.
        """
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _read(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._reply, select.POLLIN)
            if waiting.poll(None if timeout_s is None else timeout_s * 1_000):
                content = os.read(self._reply, NUMBER.size)
                # Without an answer the server is gone, and has taken its forks with it.
                self.returncode = NUMBER.unpack(content)[0] if content else -signal.SIGKILL
                os.close(self._reply)
                if self.stdin is not None:
                    self.stdin.close()
        return self.returncode


class AsyncWarmProcess:
    """The same for an event loop: what tests use of ``asyncio.subprocess.Process``."""

    def __init__(self, process: WarmProcess) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._code: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(process.fileno(), self._end)
        self.pid = process.pid
        self.send_signal = process.send_signal
        self.kill = process.kill
        self.terminate = process.terminate

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    def _end(self) -> None:
        self._loop.remove_reader(self._process.fileno())
        self._code.set_result(self._process.wait())


def start_warm(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    directory: Path = ROOT,
    stdin: IO[Any] | None = None,
    stdout: IO[Any] | None = None,
    stderr: IO[Any] | None = None,
) -> WarmProcess | subprocess.Popen[bytes]:
    """Start ``python -m module`` with these arguments in a session of its own.

    Without ``stdin`` it gets a pipe whose other end is the process' ``stdin`` here, for the caller
    to close. Output without a file is lost.
    """
    if not IS_AVAILABLE:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.PIPE if stdin is None else stdin,
            stdout=subprocess.DEVNULL if stdout is None else stdout,
            stderr=subprocess.DEVNULL if stderr is None else stderr,
            start_new_session=True,
        )
    lifeline = None
    with contextlib.ExitStack() as opened:
        if stdin is None:
            reading, writing = os.pipe()
            stdin = opened.enter_context(os.fdopen(reading, "rb"))
            lifeline = os.fdopen(writing, "wb")
        nowhere = opened.enter_context(Path(os.devnull).open("wb"))
        handles = [file.fileno() for file in (stdin, stdout or nowhere, stderr or nowhere)]
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": str(directory),
        }
        return WarmProcess(_server().start(request, handles), lifeline)


def run_warm(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    standard_input: str | None = None,
    timeout_s: float,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module`` to its end, as ``subprocess.run`` does with ``capture_output``.

    Raises:
        TimeoutExpired: It was killed, because it took too long.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as printed,
        tempfile.TemporaryFile() as said,
    ):
        given.write((standard_input or "").encode())
        given.seek(0)
        process = start_warm(
            module,
            arguments,
            environment=environment,
            stdin=given,
            stdout=printed,
            stderr=said,
        )
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (printed, said):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess([module, *arguments], code, *texts)


class ForkServer:
    """The caller's end of the server. Used by any thread."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.fork_server", str(theirs.fileno())],
            cwd=ROOT,
            env=child_environment(lifeline=False),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def start(self, request: Mapping[str, Any], handles: Sequence[int]) -> int:
        """Ask for a process; return where its id can be read, and later its exit code."""
        reading, writing = os.pipe()
        try:
            content = json.dumps(request).encode()
            socket.send_fds(self._control, [content], [*handles, writing])
        finally:
            os.close(writing)
        return reading


_lock = threading.Lock()
_servers: list[ForkServer] = []


def _server() -> ForkServer:
    """Return the server of this process; it ends with this process."""
    with _lock:
        if not _servers:
            _servers.append(ForkServer())
        return _servers[0]


# What runs in the server ------------------------------------------------------------------------


def _import_all() -> None:
    importlib.import_module("uvloop")
    for entry in ENTRIES[:-1]:
        importlib.import_module(f"{entry}.bootstrap")
        importlib.import_module(f"{entry}.config")
    importlib.import_module("nextgen.main")
    for tree in TREES:
        package = importlib.import_module(tree)
        for module in pkgutil.walk_packages(package.__path__, f"{tree}."):
            importlib.import_module(module.name)


def _serve(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request. Return one in a fork, and None in the server when its owner ended."""
    running: dict[int, int] = {}
    woken, waking = os.pipe()
    for handle in (woken, waking):
        os.set_blocking(handle, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 1_024)
            _report_ended(running)
        if control not in ready:
            continue
        content, handles, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 4)
        if not content:
            return None
        *standard, reply = handles
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            control.close()
            for handle in (woken, waking, reply, *running.values()):
                os.close(handle)
            return json.loads(content), standard
        running[pid] = reply
        _tell(reply, pid)
        for handle in standard:
            os.close(handle)


def _report_ended(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        reply = running.pop(pid)
        _tell(reply, os.waitstatus_to_exitcode(status))
        os.close(reply)


def _tell(reply: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # Nobody waits for it any more.
        os.write(reply, NUMBER.pack(number))


def _become(request: dict[str, Any], standard: list[int]) -> None:
    """Do in this fork what a new interpreter does with ``-m``."""
    os.setsid()
    for number, handle in enumerate(standard):
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    assert request["module"] in ENTRIES
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        _end(ended.code)
    else:
        _end(None)


def _end(code: object) -> NoReturn:
    """End as the interpreter does, without taking apart all that was imported.

    That takes as long as many a command, and shows nobody anything.
    """
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def main() -> None:
    """Serve until the other end of the control socket is closed."""
    _import_all()
    # A collection in a fork would copy every page of what was imported.
    gc.collect()
    gc.freeze()
    # A fork has the thread that forks, and none of the locks that others held comes free.
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"an import has begun {len(threads) - 1} threads"
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        _become(*request)


if __name__ == "__main__":
    main()
