"""The files of deploy/ that Prometheus and Grafana read, checked by Prometheus' own checker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.observability.promtool import (
    ALERTS,
    DASHBOARDS,
    DEPLOYED,
    ROOT,
    as_rules,
    dashboard_expressions,
    promtool,
)

PROMETHEUS = DEPLOYED / "prometheus"
RULES_TEST = PROMETHEUS / "tests" / "alerts_test.yml"
OPERATIONS = ROOT / "docs" / "operations.md"


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))


def dashboards() -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS]


def test_prometheus_takes_its_configuration_and_the_rules() -> None:
    promtool("check", "config", "prometheus.yml", cwd=PROMETHEUS)
    promtool("check", "rules", "alerts.yml", cwd=PROMETHEUS)


@pytest.mark.timeout(180)
def test_every_alert_is_quiet_and_told_of_when_it_should_be() -> None:
    promtool("test", "rules", RULES_TEST.name, cwd=RULES_TEST.parent)


@pytest.mark.slow
def test_a_rule_that_is_changed_is_noticed_by_its_test(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    changed = ALERTS.read_text(encoding="utf-8").replace("nextgen_shard_leads) < 1", "up) < 0")
    assert changed != ALERTS.read_text(encoding="utf-8")
    (tmp_path / "alerts.yml").write_text(changed, encoding="utf-8")
    (tmp_path / "tests" / RULES_TEST.name).write_text(RULES_TEST.read_text(encoding="utf-8"))

    with pytest.raises(AssertionError, match="ShardWithoutLeader"):
        promtool("test", "rules", RULES_TEST.name, cwd=tmp_path / "tests")


def test_every_alert_has_a_test_a_severity_and_a_section_that_says_what_to_do() -> None:
    rules, tests = ALERTS.read_text(encoding="utf-8"), RULES_TEST.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }
    for name, rule in zip(alerts(), rules.split("- alert: ")[1:], strict=True):
        assert f"alertname: {name}\n        exp_alerts:" in tests, f"{name} is never told of"
        assert re.search(r"severity: (critical|warning)", rule), name
        link = re.search(r"runbook_url: docs/operations\.md#(\S+)", rule)
        assert link is not None, name
        assert link[1] in anchors, f"{name}: docs/operations.md has no #{link[1]}"


def test_dashboards_have_ids_of_their_own_and_one_data_source() -> None:
    found = dashboards()
    assert len(found) >= 5
    assert len({one["uid"] for one in found}) == len(found)
    assert len({one["title"] for one in found}) == len(found)
    for path, one in zip(DASHBOARDS, found, strict=True):
        assert path.stem == one["uid"]
        assert [variable["name"] for variable in one["templating"]["list"]] == ["datasource"]
        ids = [panel["id"] for panel in one["panels"]]
        assert len(set(ids)) == len(ids), path.name
        for panel in one["panels"]:
            sources = [panel["datasource"], *(each["datasource"] for each in panel["targets"])]
            assert {source["uid"] for source in sources} == {"${datasource}"}, panel["title"]


def test_panels_lie_beside_each_other() -> None:
    for path, one in zip(DASHBOARDS, dashboards(), strict=True):
        taken: set[tuple[int, int]] = set()
        for panel in one["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24, f"{path.name}: {panel['title']}"
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not taken & cells, f"{path.name}: {panel['title']} lies on another panel"
            taken |= cells


def test_every_query_of_a_dashboard_is_one(tmp_path: Path) -> None:
    expressions = [expression for _, expression in dashboard_expressions()]
    (tmp_path / "queries.json").write_text(as_rules(expressions), encoding="utf-8")

    said = promtool("check", "rules", "queries.json", cwd=tmp_path)

    assert f"{len(expressions)} rules found" in said


def test_a_query_that_is_none_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "queries.json").write_text(as_rules(["sum(up"]), encoding="utf-8")

    with pytest.raises(AssertionError, match="unclosed left parenthesis"):
        promtool("check", "rules", "queries.json", cwd=tmp_path)


def test_prometheus_asks_every_process_of_the_compose_file() -> None:
    compose = (DEPLOYED / "compose.yaml").read_text(encoding="utf-8")
    lines = (PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8").splitlines()
    config = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    services = re.split(r"\n  (?=[a-z0-9-]+:\n)", compose)
    listening = {
        (service.partition(":")[0], port)
        for service in services
        for port in re.findall(r"--http-listen=0\.0\.0\.0:(\d+)", service)
    }
    assert len(listening) == 11
    assert set(re.findall(r"([a-z0-9-]+):(\d+)[,\]]", config)) == listening
