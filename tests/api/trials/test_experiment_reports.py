"""The curves of all trials of an experiment, as pages and as one table."""

import csv
import io
from typing import Any

import pytest

from service.api.trials import experiment_reports
from tests.conftest import Api

pytestmark = pytest.mark.slow


@pytest.fixture
def name(service: Api) -> str:
    """An experiment with two trials that have reported, and one between them that has not."""
    name: str = service.create(step_metric="epoch", limits={"max_trials": 9, "parallelism": 3})["name"]
    first, _, third = (service.ask(name) for _ in range(3))
    assert first
    assert third
    for epoch in (1, 2, 3):
        third.report(epoch=epoch, accuracy=epoch / 10)
    noted: Any = {"=note": "=1+1"}
    first.report(epoch=2, accuracy=0.5, **noted)
    return name


def pages(service: Api, name: str, limit: int) -> list[dict[str, Any]]:
    items, cursor = [], None
    while True:
        page = service.get(
            f"/v1/experiments/{name}/reports", params={"limit": limit, **({"cursor": cursor} if cursor else {})}
        )
        items += page["items"]
        if (cursor := page["next_cursor"]) is None:
            return items


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_pages_have_each_report_once_by_trial_and_step(service: Api, name: str, limit: int) -> None:
    items = pages(service, name, limit)
    assert [(one["trial"], one["step"], one["metrics"]["accuracy"]) for one in items] == [
        (0, 2, 0.5),
        (2, 1, 0.1),
        (2, 2, 0.2),
        (2, 3, 0.3),
    ]
    trials = service.get(f"/v1/experiments/{name}/trials")["items"]
    [alone] = service.get(f"/v1/trials/{trials[0]['id']}/reports")["items"]
    assert items[0] == {"trial": 0, **alone}


@pytest.mark.parametrize("at_a_time", [1, 2, 1000])
def test_the_table_has_a_line_for_each_metric(
    service: Api, name: str, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr(experiment_reports, "ROWS_AT_A_TIME", at_a_time)
    answer = service.http.get(f"/v1/experiments/{name}/reports?format=csv").raise_for_status()
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    curve = [(row["trial"], row["step"], row["value"]) for row in rows if row["metric"] == "accuracy"]
    assert curve == [("0", "2", "0.5"), ("2", "1", "0.1"), ("2", "2", "0.2"), ("2", "3", "0.3")]
    assert [row["value"] for row in rows if row["metric"] == "'=note"] == ["'=1+1"]


def test_an_experiment_without_reports_has_an_empty_table(service: Api) -> None:
    name = service.create()["name"]
    assert pages(service, name, 10) == []
    text = service.http.get(f"/v1/experiments/{name}/reports?format=csv").text
    assert text.split() == ["trial,step,attempt,at,metric,value"]


def test_an_unknown_experiment_has_none(service: Api) -> None:
    assert service.http.get("/v1/experiments/absent/reports?format=csv").status_code == 404
