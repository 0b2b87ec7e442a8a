"""A standalone Spark cluster on loopback: one master, two workers, each a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
import pyspark

from tests.spark.conftest import QUICK_JVM
from tests.support.processes.free_ports import free_ports

LOOPBACK = "127.0.0.1"
WORKERS = 2
STARTED_WITHIN_S = 40
LOOK_S = 0.05
EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """``url`` is what ``--master`` takes; ``environment`` is for the processes that use it."""

    url: str
    environment: Mapping[str, str]
    workers: tuple[subprocess.Popen[bytes], ...]

    def executors(self) -> list[psutil.Process]:
        """Return the executors that run: they are the workers' children."""
        found = []
        for worker in self.workers:
            for child in psutil.Process(worker.pid).children(recursive=True):
                try:
                    if any(EXECUTOR_CLASS in word for word in child.cmdline()):
                        found.append(child)
                except psutil.Error:  # It has just ended.
                    continue
        return found


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[StandaloneCluster]:
    """Start a cluster whose files are in ``directory``; end its processes with the block."""
    configuration = directory / "conf"
    configuration.mkdir(parents=True)
    (configuration / "spark-defaults.conf").write_text(
        "spark.executor.memory 512m\n"
        "spark.executor.cores 1\n"
        f"spark.executor.extraJavaOptions {QUICK_JVM}\n"
        f"spark.driver.extraJavaOptions {QUICK_JVM}\n"
    )
    environment = {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(configuration),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_HOSTNAME": LOOPBACK,
        "SPARK_WORKER_DIR": str(directory / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path.cwd()),
    }
    port, ui_port = free_ports(2)
    url = f"spark://{LOOPBACK}:{port}"
    with ExitStack() as started:

        def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            log = started.enter_context((directory / f"{name}.log").open("wb"))
            command = [f"{environment['SPARK_HOME']}/bin/spark-class", *arguments]
            # The script becomes the JVM: this very process is the one to end.
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            started.callback(end, process)
            return process

        place = ("--host", LOOPBACK, "--webui-port")
        start("master", f"{PACKAGE}.master.Master", "--port", str(port), *place, str(ui_port))
        worker = (f"{PACKAGE}.worker.Worker", "--cores", "1", "--memory", "700m", *place, "0", url)
        workers = tuple(start(f"worker-{number}", *worker) for number in range(WORKERS))
        wait_for(
            lambda: (directory / "master.log").read_text().count("Registering worker") >= WORKERS,
            STARTED_WITHIN_S,
            "the workers to register",
        )
        yield StandaloneCluster(url, environment, workers)


PACKAGE = "org.apache.spark.deploy"


def end(process: subprocess.Popen[bytes]) -> None:
    """End one process, and executors that it left."""
    children = (
        psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    )
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        if child.is_running():
            child.kill()


def wait_for(condition: Callable[[], T], within_s: float, what: str) -> T:
    """Return what ``condition`` gives as soon as that is true.

    Raises:
        AssertionError: It is not in time.
    """
    give_up_at = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < give_up_at, f"{within_s} s were not enough for {what}"
        time.sleep(LOOK_S)
    return found
