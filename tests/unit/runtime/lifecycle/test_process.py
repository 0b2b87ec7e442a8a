"""Exit codes, signals and the lifeline, each with a real process that does nothing else."""

import os
import resource
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nextgen.kernel.limits.pulsar import OPEN_FILES_MAX
from nextgen.runtime.lifecycle import process as process_module

ROOT = Path(__file__).parents[4]
DEADLINE_S = 20

pytestmark = pytest.mark.integration

WAITS = """
    async def serve(shutdown):
        print("started", flush=True)
        await shutdown.wait()
        print("stopped:", shutdown.reason, flush=True)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def start_process(
        body: str, *flags: str, lifeline: str = "", stdin: int | None = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        program = "from nextgen.runtime.lifecycle.process import *\nimport asyncio, sys, time\n"
        program += textwrap.dedent(body) + "\nrun(serve)\n"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NEXTGEN_LIFELINE": lifeline}
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", program],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        processes.append(process)
        return process

    yield start_process
    for process in processes:
        process.kill()
        process.communicate()


def wait_started(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_the_process_to_stop(start: Start, number: signal.Signals) -> None:
    process = start(WAITS)
    wait_started(process)

    process.send_signal(number)

    code, out, _ = ended(process)
    assert (code, out) == (0, f"stopped: {number.name}\n")


def test_a_second_sigint_ends_a_process_that_hesitates(start: Start) -> None:
    process = start(
        """
        async def serve(shutdown):
            print("started", flush=True)
            await shutdown.wait()
            print("stopping", flush=True)
            await asyncio.sleep(3600)
        """
    )
    wait_started(process)

    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)

    assert ended(process)[0] == os.EX_TEMPFAIL


def test_a_second_sigterm_lets_the_process_stop_in_its_own_time(start: Start) -> None:
    """A parent that dies causes one, beside the end of the lifeline that asked first."""
    process = start(
        """
        async def serve(shutdown):
            print("started", flush=True)
            await shutdown.wait()
            print("stopping", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            print("stopped", flush=True)
        """
    )
    wait_started(process)

    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdin is not None
    process.stdin.write("go on\n")

    assert ended(process)[:2] == (0, "stopped\n")


def test_a_process_that_hands_work_over_may_take_as_long_as_it_said(start: Start) -> None:
    process = start(
        """
        import nextgen.runtime.lifecycle.process as shell
        shell.SHUTDOWN_MS_MAX = 50

        async def serve(shutdown):
            shutdown.deadline_ms = 60_000
            print("started", flush=True)
            await shutdown.wait()
            await asyncio.sleep(0.3)
            print("handed over", flush=True)
        """
    )
    wait_started(process)

    process.send_signal(signal.SIGTERM)

    assert ended(process)[:2] == (0, "handed over\n")


def test_a_process_that_hangs_ends_at_its_deadline(start: Start) -> None:
    """The loop itself is blocked, so nothing that runs on it could end the process."""
    process = start(
        """
        import nextgen.runtime.lifecycle.process as shell
        shell.SHUTDOWN_MS_MAX = 200

        async def serve(shutdown):
            print("started", flush=True)
            await shutdown.wait()
            time.sleep(3600)
        """
    )
    wait_started(process)

    process.send_signal(signal.SIGTERM)

    code, _, err = ended(process)
    assert code == os.EX_TEMPFAIL
    assert "did not stop in time" in err


def test_a_process_may_open_as_many_files_as_the_system_lets_it(start: Start) -> None:
    process = start("""
        import resource
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        async def serve(shutdown):
            print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, OPEN_FILES_MAX))
    """)

    assert ended(process)[:2] == (0, "True\n")


@pytest.mark.parametrize("hard", [OPEN_FILES_MAX, OPEN_FILES_MAX + 1, resource.RLIM_INFINITY])
def test_a_process_requests_open_files_max_and_no_more_though_the_system_would_grant_them(
    monkeypatch: pytest.MonkeyPatch, hard: int
) -> None:
    requested: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: requested.append(limits))

    process_module.allow_open_files()

    assert requested == [(OPEN_FILES_MAX, hard)]


def test_a_process_whose_work_is_done_ends(start: Start) -> None:
    assert ended(start("async def serve(shutdown): print('done')"))[:2] == (0, "done\n")


@pytest.mark.parametrize("where", ["directly", "in a task group"])
def test_a_refusal_to_start_is_one_sentence(start: Start, where: str) -> None:
    process = start(
        f"""
        from nextgen.kernel.errors import WrongCluster

        async def refuse():
            raise WrongCluster("data directory x belongs to cluster y")

        async def serve(shutdown):
            if {where!r} == "directly":
                await refuse()
            async with asyncio.TaskGroup() as group:
                group.create_task(refuse())
        """
    )

    assert ended(process) == (
        os.EX_CONFIG,
        "",
        "refuses to start: data directory x belongs to cluster y\n",
    )


def test_a_broken_process_says_so_and_fails(start: Start) -> None:
    process = start("async def serve(shutdown): assert 1 == 2, 'gap in the log'")

    code, out, err = ended(process)

    assert (code, out) == (os.EX_SOFTWARE, "")
    assert "AssertionError: gap in the log" in err


def test_a_process_that_cannot_go_on_for_a_full_disk_says_so_without_a_traceback(
    start: Start,
) -> None:
    process = start("async def serve(shutdown): raise OSError(28, 'No space left on device')")

    code, out, err = ended(process)

    assert (code, out) == (os.EX_IOERR, "")
    assert "cannot go on: the disk is full" in err
    assert "Traceback" not in err


def test_a_process_without_assertions_refuses_to_start(start: Start) -> None:
    code, out, err = ended(start(WAITS, "-O"))

    assert (code, out) == (os.EX_CONFIG, "")
    assert "python -O" in err


def test_the_loop_is_uvloop(start: Start) -> None:
    body = "async def serve(shutdown): print(type(asyncio.get_running_loop()).__module__)"

    assert ended(start(body))[:2] == (0, "uvloop\n")


def test_tuning_freezes_what_was_made_at_start(start: Start) -> None:
    process = start(
        """
        import gc

        async def serve(shutdown):
            kept = [[] for _ in range(1000)]
            tune_garbage_collector()
            print(gc.get_freeze_count() > 1000, gc.get_threshold()[0])
        """
    )

    assert ended(process)[:2] == (0, "True 50000\n")


# Lifeline -------------------------------------------------------------------------------------


def test_a_child_ends_when_its_lifeline_is_cut(start: Start) -> None:
    process = start(WAITS, lifeline="stdin")
    wait_started(process)

    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None

    code, out, _ = ended(process)
    assert (code, out) == (0, "stopped: parent is gone\n")


def test_a_child_outlives_no_parent_that_was_killed(start: Start, tmp_path: Path) -> None:
    """SIGKILL gives the parent no chance to say anything to its child."""
    child_body = textwrap.dedent(WAITS)
    child = "from nextgen.runtime.lifecycle.process import *\n" + child_body + "\nrun(serve)\n"
    program = f"""
        import subprocess

        async def serve(shutdown):
            child = subprocess.Popen(
                [sys.executable, "-c", {child!r}],
                stdin=subprocess.PIPE,
                stdout=open({str(tmp_path / "out")!r}, "w"),
                env={{**__import__("os").environ, "NEXTGEN_LIFELINE": "stdin"}},
            )
            print("started", flush=True)
            print(child.pid, flush=True)
            await shutdown.wait()
    """
    parent = start(program)
    wait_started(parent)
    assert parent.stdout is not None
    child_descriptor = os.pidfd_open(int(parent.stdout.readline()))

    parent.kill()

    assert _wait_gone(child_descriptor), "the child outlived its parent"


def _wait_gone(process_descriptor: int) -> bool:
    try:
        readable, _, _ = select.select([process_descriptor], [], [], DEADLINE_S)
    finally:
        os.close(process_descriptor)
    return bool(readable)


def test_without_a_lifeline_the_end_of_standard_input_means_nothing(start: Start) -> None:
    process = start(WAITS, stdin=subprocess.DEVNULL)
    wait_started(process)

    process.send_signal(signal.SIGTERM)

    assert ended(process)[:2] == (0, "stopped: SIGTERM\n")


def test_a_lifeline_that_is_no_pipe_is_refused(start: Start) -> None:
    code, _, err = ended(start(WAITS, lifeline="stdin", stdin=subprocess.DEVNULL))

    assert code == os.EX_CONFIG
    assert "standard input is not a pipe" in err


def test_an_unknown_lifeline_is_refused(start: Start) -> None:
    code, _, err = ended(start(WAITS, lifeline="rope"))

    assert code == os.EX_CONFIG
    assert "'rope', only 'stdin' is known" in err
