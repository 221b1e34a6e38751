"""The dashboard and the alert rules in `monitoring/` ask for metrics that a service exports, and all are documented."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import promql_parser
import pytest
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import Expr, Matcher, MatchOp, VectorSelector

from service.settings import Settings
from tests.architecture.documented_tables import code_in, rows_under
from tests.conftest import running

pytestmark = pytest.mark.slow

MONITORING = Path(__file__).parents[3] / "monitoring"
PROMETHEUS_OWN = {"up": {"job", "instance"}}
"""What a Prometheus server adds: this metric, and these labels of all metrics."""
OF_THE_LIBRARY = "_created"
"""prometheus_client adds to each histogram when it was made."""


def queries_of_rules() -> Iterator[str]:
    for group in yaml.safe_load((MONITORING / "alert-rules.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def queries_of_dashboard() -> Iterator[str]:
    for panel in json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m")


def selectors(query: str) -> list[VectorSelector]:
    found: list[VectorSelector] = []

    def visit(node: Expr) -> bool:
        if isinstance(node, VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(query), visit)
    return found


@pytest.fixture
def exported(settings: Settings) -> list[Metric]:
    """The metrics of a service on which everything has happened once that has a metric."""
    with running(replace(settings, mlflow_uri="http://127.0.0.1:9", max_followers=0)) as service:
        name = service.create()["name"]
        held = service.ask(name)
        assert held
        held.report(accuracy=1)
        held.finish("completed")
        service.get("/v1/experiments/none", 404)
        service.get(f"/v1/experiments/{name}/events", 503, headers={"Accept": "text/event-stream"})
        return list(text_string_to_metric_families(service.http.get("/metrics").text))


def matches(selector: VectorSelector, labels: dict[str, str]) -> bool:
    conditions = [one for one in selector.matchers.matchers if one.name not in PROMETHEUS_OWN["up"]]
    return all(_holds(one, labels.get(one.name, "")) for one in conditions)


def _holds(condition: Matcher, value: str) -> bool:
    is_pattern = condition.op in (MatchOp.Re, MatchOp.NotRe)
    found = bool(re.fullmatch(condition.value, value)) if is_pattern else value == condition.value
    return found == (condition.op in (MatchOp.Equal, MatchOp.Re))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_each_exported_metric_is_documented_with_its_type_and_labels(exported: list[Metric]) -> None:
    own = [one for one in exported if one.name.startswith("paceline_") and not one.name.endswith(OF_THE_LIBRARY)]
    labels = {metric.name: {name for one in metric.samples for name in one.labels} - {"le"} for metric in own}
    documented = {code_in(row["metric"])[0]: row for row in rows_under("operations/deployment.md", "### Metrics")}
    assert {name: set(code_in(row["labels"])) for name, row in documented.items()} == labels
    assert {name: row["type"] for name, row in documented.items()} == {metric.name: metric.type for metric in own}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_each_query_finds_an_exported_metric(exported: list[Metric]) -> None:
    samples = [sample for metric in exported for sample in metric.samples]
    queries = [*queries_of_rules(), *queries_of_dashboard()]
    assert len(queries) > 30
    for query in queries:
        for selector in selectors(query):
            assert selector.name in PROMETHEUS_OWN or any(
                sample.name == selector.name and matches(selector, sample.labels) for sample in samples
            ), f"the service exports nothing for {selector} in {query}"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_each_metric_of_the_service_is_on_the_dashboard_or_in_a_rule(exported: list[Metric]) -> None:
    queries = [*queries_of_rules(), *queries_of_dashboard()]
    used = {re.sub("_(bucket|count|sum)$", "", one.name or "") for query in queries for one in selectors(query)}
    own = {metric.name for metric in exported if metric.name.startswith("paceline_")}
    assert not own - used - {"paceline_http_request_seconds_created"}
