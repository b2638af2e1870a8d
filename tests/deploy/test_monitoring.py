"""Prometheus's and Grafana's files; promtool's own word where it is."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from backend.serving.metrics.engine_families import ENGINE_FAMILIES
from backend.serving.metrics.family import Kind

from .compose_file import ROOT, services
from .queries import dashboard_queries, families, rules

PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"


def test_each_alert_says_what_to_do_and_has_a_case_where_it_fires_and_one_where_it_does_not():
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 0
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in ("page", "ticket")
    cases = [case for path in PROMETHEUS.glob("*alerts_test.yml") for case in yaml.safe_load(path.read_text())["tests"]]
    tried = [(test["alertname"], bool(test["exp_alerts"])) for case in cases for test in case["alert_rule_test"]]
    assert set(tried) == {(name, fires) for name in names for fires in (False, True)}


def test_prometheus_asks_where_the_servers_metrics_are():
    jobs = {
        job["job_name"]: job for job in yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    }
    ((target,),) = [config["targets"] for config in jobs["triton"]["static_configs"]]
    host, port = target.split(":")
    for name in ("server-cpu", "server-gpu"):
        assert host in services()[name]["networks"]["default"]["aliases"]
        assert any(each.endswith(f":{port}") for each in services()[name]["ports"])


def test_grafana_finds_its_source_and_its_dashboards():
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/files.yml").read_text())["providers"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in services()["grafana"]["volumes"]
    for path in (GRAFANA / "dashboards").glob("*.json"):
        panels = json.loads(path.read_text())["panels"]
        assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
        assert len({panel["id"] for panel in panels}) == len(panels)
    assert dashboard_queries()


def test_families_are_found_in_a_query():
    rates = 'sum by (model) (rate(nv_a_b{model="nv_x"}[5m])) / on (model) vllm:c'
    query = f"{rates} > 0 and increase(inflight_d_total[5m]) == 0"
    assert families(query) == {"nv_a_b", "vllm:c", "inflight_d_total"}


def lines_of(family):
    """Name on the page -> label names of each series there."""
    own = {"model", "version", *family.labels}
    if family.kind is not Kind.HISTOGRAM:
        return {family.name: own}
    return {f"{family.name}_bucket": own | {"le"}, f"{family.name}_sum": own, f"{family.name}_count": own}


def test_what_is_asked_of_the_engine_is_what_it_publishes_with_the_same_labels():
    published = {name: labels for family in ENGINE_FAMILIES for name, labels in lines_of(family).items()}
    asked = set().union(*(families(query) for query in [*dashboard_queries(), *(rule["expr"] for rule in rules())]))
    of_engine = {name for name in asked if name.startswith("inflight_")}
    assert len(of_engine) > 10
    assert of_engine <= published.keys()
    tried = (PROMETHEUS / "engine_alerts_test.yml").read_text()
    for name, labels in re.findall(r"'(inflight_\w+){(.*?)}'", tried):
        assert set(re.findall(r"(\w+)=", labels)) == published[name] | {"instance"}, name


def test_every_file_of_rules_is_read():
    named = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["rule_files"]
    assert sorted(named) == sorted(path.name for path in PROMETHEUS.glob("*alerts.yml"))


CHECKS = [["check", "config", "prometheus.yml"]]
CHECKS += [["check", "rules", path.name] for path in sorted(PROMETHEUS.glob("*alerts.yml"))]
CHECKS += [["test", "rules", path.name] for path in sorted(PROMETHEUS.glob("*alerts_test.yml"))]


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
@pytest.mark.parametrize("line", CHECKS)
def test_promtool_accepts_the_files_and_the_alerts_fire_as_they_should(line):
    done = subprocess.run(["promtool", *line], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
@pytest.mark.parametrize("query", dashboard_queries())
def test_promtool_can_read_each_query_of_the_dashboards(query, tmp_path):
    rule = {"groups": [{"name": "g", "rules": [{"record": "r", "expr": query.replace("$__rate_interval", "1m")}]}]}
    (tmp_path / "rule.yml").write_text(yaml.safe_dump(rule))
    done = subprocess.run(["promtool", "check", "rules", str(tmp_path / "rule.yml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
