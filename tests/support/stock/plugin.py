"""The plug-in's jar and the classpath of the broker that it is for, from Maven Central."""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.stock.standalone import SETTINGS
from tests.support.callers.foreign_client import QUICK_JVM, ROOT, built, require_tools

PROJECT = ROOT / "integrations" / "pulsar-load-manager"


def plugin_classpath() -> str:
    """Return the classpath of a broker with the plug-in, built if it is not yet.

    Skips the test by name where Java or Maven is missing.
    """
    require_tools("java", "mvn")
    sources = sorted((PROJECT / "src" / "main").rglob("*.java"))
    folder = built("stock-plugin", [PROJECT / "pom.xml", *sources], _command)
    (jar,) = folder.glob("pulsar-load-manager-*.jar")
    return f"{jar}:{(folder / 'classpath').read_text(encoding='utf-8').strip()}"


def command_of_tests(folder: Path) -> list[str]:
    """Return the command that runs the plug-in's own tests, on JVMs that verify its classes."""
    return [*_maven(folder), f"-DargLine={' '.join(QUICK_JVM)}", "test"]


def _command(folder: Path) -> list[str]:
    return [
        *_maven(folder),
        "-Dmaven.test.skip=true",
        "package",
        "dependency:build-classpath",
        f"-Dmdep.outputFile={folder / 'classpath'}",
    ]


def _maven(folder: Path) -> list[str]:
    settings = folder / "settings.xml"
    settings.write_text(SETTINGS, encoding="utf-8")
    return [
        *("mvn", "--batch-mode", "--quiet", "--settings", str(settings)),
        *("--file", str(PROJECT / "pom.xml"), f"-Dbuild.folder={folder}"),
    ]
