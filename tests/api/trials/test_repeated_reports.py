"""Reports that are sent again: by a caller whose answer was lost, or by one that does not count them."""

from typing import Any

import pytest

from tests.conftest import Api

pytestmark = pytest.mark.slow


def test_a_repeated_report_is_harmless(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    for _ in range(2):
        held.sequence = 0
        held.report(accuracy=0.5)
    reports = service.get(f"/v1/trials/{held.trial}/reports")["items"]
    assert [(report["step"], report["metrics"]) for report in reports] == [(1, {"accuracy": 0.5})]


def test_a_report_sent_again_with_its_checkpoint_adds_the_checkpoint(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.report(accuracy=0.5)
    held.sequence = 0
    held.report(accuracy=0.5, checkpoint="/store/one")
    checkpoints = service.get(f"/v1/trials/{held.trial}/checkpoints")["items"]
    assert [(one["uri"], one["step"]) for one in checkpoints] == [("/store/one", 1)]


def test_a_report_under_the_number_of_the_one_before_is_refused_if_its_metrics_differ(service: Api) -> None:
    """Otherwise a caller that gives all of its reports the same number would lose them without an error."""
    held = service.ask(service.create()["name"])
    assert held
    wide: dict[str, Any] = {
        "accuracy": 1e23,
        "tiny": 5e-324,
        "count": 2**60,
        "text": "a\x00b",
        "nested": {"x": [1, 2.5, None]},
    }
    for _ in range(2):
        held.sequence = 0
        held.report(**wide)
    held.sequence = 0
    problem = held.report(422, accuracy=0.5)
    assert "report 0 was sent before, with other metrics; the next report has the sequence 1" in str(problem)
    held.sequence = 1
    held.report(accuracy=0.5)
    assert held.shown()["values"] == {"accuracy": 0.5}


@pytest.mark.parametrize(
    "second", [{"metrics": {"accuracy": 0.9}}, {"metrics": {"accuracy": 0.5}, "step": 2}], ids=["metrics", "step"]
)
def test_different_reports_of_one_call_under_one_number_are_refused(service: Api, second: dict[str, Any]) -> None:
    held = service.ask(service.create()["name"])
    assert held
    first = {"sequence": 0, "metrics": {"accuracy": 0.5}}
    problem = held.call("reports", 422, body={"reports": [first, {"sequence": 0, **second}]})
    assert "two different reports of this call have the sequence 0" in str(problem)
    assert service.get(f"/v1/trials/{held.trial}/reports")["items"] == []
    nan = {"sequence": 0, "metrics": {"accuracy": 0.5, "other": "NaN"}}
    held.call("reports", body={"reports": [nan, nan]})
    assert held.shown()["values"] == {"accuracy": 0.5}


def test_an_older_report_that_is_sent_again_with_other_metrics_is_answered_and_dropped(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    for accuracy in (0.5, 0.6):
        held.report(accuracy=accuracy)
    held.sequence = 0
    assert held.report(accuracy=0.99)["decision"] == "continue"
    stored = service.get(f"/v1/trials/{held.trial}/reports")["items"]
    assert [one["metrics"] for one in stored] == [{"accuracy": 0.5}, {"accuracy": 0.6}]


def test_a_late_repeat_does_not_add_a_dropped_checkpoint_again(service: Api) -> None:
    """Its directory is removed by then; the trial resumes from the newest one."""
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    for number in range(3):
        held.report(accuracy=number, checkpoint=f"/{number}")
    reports = [{"sequence": n, "metrics": {"accuracy": n}, "checkpoint": f"/{n}"} for n in range(3)]
    held.call("reports", body={"reports": reports})
    held.call("reports", body={"reports": reports[:1]})
    assert [one["uri"] for one in service.get(f"/v1/trials/{held.trial}/checkpoints")["items"]] == ["/2"]
    stored = [event["data"]["uri"] for event in service.events(name) if event["kind"] == "checkpoint"]
    assert stored == ["/0", "/1", "/2"]
