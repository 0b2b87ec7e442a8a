import json
import logging
from contextlib import redirect_stderr
from io import StringIO

import pytest
import structlog

from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.telemetry.logs import configure_logging


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEXTGEN_LOG_LEVEL", raising=False)
    monkeypatch.delenv("NEXTGEN_LOG_FORMAT", raising=False)


MODULES_LOGGER = structlog.get_logger(__name__)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_a_line_is_json_with_the_context_of_the_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(component="shards", node_id="shard-node-1")

    structlog.get_logger().info("elected", shard=3, term=7)

    [line] = lines(capsys)
    assert str(line.pop("timestamp")).endswith("Z")
    assert line == {
        "event": "elected",
        "level": "info",
        "component": "shards",
        "node_id": "shard-node-1",
        "shard": 3,
        "term": 7,
    }


def test_records_of_libraries_come_out_in_the_same_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(component="shards")

    logging.getLogger("asyncio").warning("slow callback: %s", "x")
    logging.getLogger("asyncio").info("not for the operator")

    [line] = lines(capsys)
    assert (line["event"], line["level"], line["logger"], line["component"]) == (
        "slow callback: x",
        "warning",
        "asyncio",
        "shards",
    )


def test_records_of_libraries_outlive_the_standard_error_of_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with redirect_stderr(StringIO()) as of_command:
        configure_logging()
    of_command.close()

    logging.getLogger("asyncio").error("Event loop is closed")

    [line] = lines(capsys)
    assert line["event"] == "Event loop is closed"


def test_an_exception_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()

    structlog.get_logger().error("broken", exc_info=ValueError("no\nsuch"))
    logging.getLogger("grpc").error("broken too", exc_info=ValueError("none"))

    first, second = lines(capsys)
    assert "ValueError: no\nsuch" in str(first["exception"])
    assert "ValueError: none" in str(second["exception"])


def test_lines_below_the_level_are_dropped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXTGEN_LOG_LEVEL", "Warning")
    configure_logging()

    structlog.get_logger().info("chatter")
    structlog.get_logger().warning("news")

    assert [line["event"] for line in lines(capsys)] == ["news"]


def test_a_flag_wins_over_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXTGEN_LOG_LEVEL", "error")
    monkeypatch.setenv("NEXTGEN_LOG_FORMAT", "json")
    configure_logging(level="debug", log_format="console")

    structlog.get_logger().debug("detail", shard=3)

    printed = capsys.readouterr().err
    assert "detail" in printed
    assert "shard=3" in printed
    assert not printed.startswith("{")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"level": "loud"}, "log level 'loud' does not exist, use one of debug, info"),
        ({"log_format": "xml"}, "log format 'xml' does not exist, use json or console"),
    ],
)
def test_a_mistake_in_the_settings_is_refused(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(RefusesToStart, match=sentence):
        configure_logging(**settings)


@pytest.mark.parametrize("turn", ["one test", "the next one"])
def test_a_modules_logger_writes_for_each_test_anew(
    capsys: pytest.CaptureFixture[str], turn: str
) -> None:
    """A process keeps a logger as it was used first; the tests' process is many in one."""
    configure_logging()

    MODULES_LOGGER.info(turn)

    assert [line["event"] for line in lines(capsys)] == [turn]
