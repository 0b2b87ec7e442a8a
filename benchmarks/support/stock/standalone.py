"""A stock Apache Pulsar broker from Maven Central, standalone, for comparisons."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

from nextgen.tasks.timeouts import timeout
from tests.support.processes.free_ports import free_ports

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peer</groupId><artifactId>peer</artifactId><version>1</version>
  <packaging>pom</packaging>{managed}
  <dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar-broker</artifactId>
    <version>{version}</version>
  </dependency></dependencies>
</project>
"""
# The milestone's own poms mix versions of Jackson that do not work together.
MANAGED_FROM_5 = """
  <dependencyManagement><dependencies><dependency>
    <groupId>com.fasterxml.jackson</groupId><artifactId>jackson-bom</artifactId>
    <version>2.21.3</version><type>pom</type><scope>import</scope>
  </dependency></dependencies></dependencyManagement>"""
# Its poms name further repositories; what is needed is all on Central.
SETTINGS = """<settings><mirrors><mirror><id>central-only</id><mirrorOf>*,!central</mirrorOf>
  <url>https://repo.maven.apache.org/maven2</url></mirror></mirrors></settings>
"""
CONFIGURATION = """brokerServicePort={pulsar}
webServicePort={http}
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
clusterName=standalone
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
loadBalancerEnabled=false
allowLoopback=true
metadataStoreUrl=
configurationMetadataStoreUrl=
"""
OPENED = (
    "java.base/sun.net",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
"""Packages that the broker reaches into, as its own start script opens them."""

MAVEN_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
RESOLVE_TIMEOUT_S = 600
READY_TIMEOUT_S = 240


class NoPeer(Exception):
    """Why no stock broker runs here."""


class StockBroker:
    """One process. ``async with`` starts it, waits until it serves public/default, and kills it."""

    def __init__(
        self,
        directory: Path,
        *,
        version: str,
        java: str,
        heap: str,
        settings: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        """``settings``: further lines of its configuration, such as those of TLS. ``flags``: of
        its JVM, for one that is not measured."""
        self._directory = directory
        self._version = version
        self._java = java
        self._heap = heap
        self._settings = settings or {}
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None
        self.port, self._http_port = free_ports(2)

    @property
    def http(self) -> str:
        """host:port of its admin interface."""
        return f"127.0.0.1:{self._http_port}"

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> StockBroker:
        classpath = await self._resolve()
        configuration = self._directory / "standalone.conf"
        configuration.write_text(
            CONFIGURATION.format(pulsar=self.port, http=self._http_port)
            + "".join(f"{name}={value}\n" for name, value in self._settings.items()),
            encoding="utf-8",
        )
        with (self._directory / "broker.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                self._java,
                *self._flags,
                f"-Xmx{self._heap}",
                f"-XX:MaxDirectMemorySize={self._heap}",
                *[part for name in OPENED for part in ("--add-opens", f"{name}=ALL-UNNAMED")],
                "-Dio.netty.tryReflectionSetAccessible=true",
                "org.apache.pulsar.PulsarStandaloneStarter",
                "--config",
                configuration.name,
                "-nss",
                "-nfw",
                "--metadata-dir",
                "metadata",
                "--bookkeeper-dir",
                "bookkeeper",
                *self._bookie_options(),
                cwd=self._directory,
                env={**os.environ, "CLASSPATH": classpath},
                stdout=log,
                stderr=log,
            )
        try:
            await self._wait_ready()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_exception: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            # In order it takes as long as its start, and nobody reads what it leaves.
            self._process.kill()
        await self._process.wait()

    def _bookie_options(self) -> tuple[str, ...]:
        """From 5.0 on, a bookie takes a free port by itself."""
        return () if self._is_5 else ("--bookkeeper-port", str(*free_ports(1)))

    @property
    def _is_5(self) -> bool:
        return int(self._version.partition(".")[0]) >= 5

    async def _resolve(self) -> str:
        maven = shutil.which("mvn")
        if maven is None:
            raise NoPeer("there is no mvn to fetch a stock broker with")
        if shutil.which(self._java) is None:
            raise NoPeer(f"there is no {self._java}")
        pom = POM.format(version=self._version, managed=MANAGED_FROM_5 if self._is_5 else "")
        (self._directory / "pom.xml").write_text(pom)
        (self._directory / "settings.xml").write_text(SETTINGS)
        process = await asyncio.create_subprocess_exec(
            maven,
            "--quiet",
            "--batch-mode",
            "--settings",
            "settings.xml",
            "dependency:build-classpath",
            "-Dmdep.outputFile=classpath",
            cwd=self._directory,
            env={"MAVEN_OPTS": MAVEN_FLAGS, **os.environ},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with timeout(RESOLVE_TIMEOUT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise NoPeer(f"mvn was not done after {RESOLVE_TIMEOUT_S} s") from None
        if process.returncode:
            lines = [line for line in output.decode().splitlines() if "ERROR" in line]
            raise NoPeer(f"mvn could not resolve it: {lines[0] if lines else output[:200]!r}")
        return (self._directory / "classpath").read_text(encoding="utf-8").strip()

    async def _wait_ready(self) -> None:
        assert self._process is not None
        url = f"http://127.0.0.1:{self._http_port}/admin/v2/namespaces/public"
        async with aiohttp.ClientSession() as session:
            for _ in range(READY_TIMEOUT_S):
                if self._process.returncode is not None:
                    break
                try:
                    async with session.get(url) as response:
                        if "public/default" in await response.text():
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(1)
        raise NoPeer(f"it did not start: {self._last_line()}")

    def _last_line(self) -> str:
        lines = (self._directory / "broker.log").read_text("utf-8", "replace").splitlines()
        errors = [line for line in lines if "ERROR" in line]
        return (errors or lines or ["it wrote nothing"])[-1][:300]
