"""An objective with `report: best`: a trial keeps the checkpoint of its best report beside the newest ones."""

from typing import Any

import pytest

from tests.api.trials.best_report_curves import BEST, CURVE, given
from tests.conftest import Api, Held

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite", "postgresql")]


def an_experiment(service: Api, **changes: Any) -> str:
    return str(service.create(**{"objectives": BEST, **changes})["name"])


def saved(held: Held, *values: Any) -> list[str]:
    """Report the values with checkpoints; returns what the slot must keep after the last one."""
    kept: list[str] = []
    for accuracy in values:
        kept = held.report(accuracy=accuracy, checkpoint=f"/{held.assignment['attempt']}-{held.sequence}")["kept"]
    return kept


def listed(held: Held) -> list[tuple[int, str, float | None]]:
    """The newest first."""
    items = held.api.get(f"/v1/trials/{held.trial}/checkpoints")["items"]
    return [(one["step"], one["uri"], one["value"]) for one in items]


def shown(held: Held) -> tuple[int, float | None]:
    """The step and the value of the trial's checkpoint."""
    checkpoint = held.shown()["checkpoint"]
    return checkpoint["step"], checkpoint["value"]


def test_the_best_checkpoint_is_kept_and_shown_beside_the_newest(service: Api) -> None:
    name = an_experiment(service)
    held = given(service, name)
    assert saved(held, *CURVE) == ["/1-1", "/1-3"]
    assert listed(held) == [(4, "/1-3", 0.4), (2, "/1-1", 0.9)]
    held.finish()
    best = service.get(f"/v1/experiments/{name}/best")
    assert (best["value"], best["best_step"], best["checkpoint"]["step"]) == (0.9, 2, 2)
    [trial] = service.get(f"/v1/experiments/{name}/trials")["items"]
    assert (trial["checkpoint"]["uri"], trial["checkpoint"]["value"]) == ("/1-1", 0.9)
    events = [one["data"] for one in service.events(name) if one["kind"] == "checkpoint"]
    assert [(one["step"], one["is_best"]) for one in events] == [(1, True), (2, True), (3, False), (4, False)]


def test_without_it_only_the_newest_is_kept_with_its_value(service: Api) -> None:
    held = given(service, service.create()["name"])
    assert saved(held, *CURVE) == ["/1-3"]
    assert (listed(held), shown(held)) == ([(4, "/1-3", 0.4)], (4, 0.4))


def test_keep_counts_the_newest_and_the_best_comes_beside_them(service: Api) -> None:
    held = given(service, an_experiment(service, checkpoints={"keep": 2}))
    assert saved(held, 0.1, 0.9, 0.2) == ["/1-1", "/1-2"]
    assert saved(held, 0.3, 0.4) == ["/1-1", "/1-3", "/1-4"]
    assert saved(held, 0.9) == ["/1-1", "/1-4", "/1-5"], "the first of equal ones"
    assert saved(held, 0.95) == ["/1-5", "/1-6"], "the better one is among the newest"


def test_a_better_one_replaces_the_best(service: Api) -> None:
    held = given(service, an_experiment(service, objectives=[{**BEST[0], "direction": "minimize"}]))
    assert [saved(held, value) for value in (0.5, 0.9, 0.4, 0.4, 0.3)] == [
        ["/1-0"],
        ["/1-0", "/1-1"],
        ["/1-2"],
        ["/1-2", "/1-3"],
        ["/1-4"],
    ]


def test_if_the_best_report_has_saved_none_the_best_of_those_that_have_is_kept(service: Api) -> None:
    held = given(service, an_experiment(service))
    saved(held, 0.5, 0.8)
    held.report(accuracy=0.9)
    assert saved(held, 0.7) == ["/1-1", "/1-3"]
    assert (held.shown()["value"], held.shown()["best_step"], shown(held)) == (0.9, 3, (2, 0.8))


def test_without_a_value_the_newest_is_shown(service: Api) -> None:
    held = given(service, an_experiment(service))
    held.report(loss=1.0, checkpoint="/first")
    assert held.report(loss=1.0, checkpoint="/second")["kept"] == ["/second"]
    assert shown(held) == (2, None)
    held.report(accuracy=0.5, checkpoint="/third")
    assert held.report(loss=1.0, checkpoint="/fourth")["kept"] == ["/third", "/fourth"]
    assert shown(held) == (3, 0.5)


@pytest.mark.parametrize("checkpoint_first", [True, False])
def test_the_value_may_come_in_another_report_of_the_step(service: Api, checkpoint_first: bool) -> None:
    held = given(service, an_experiment(service, step_metric="epoch"))
    for epoch, accuracy in ((1, 0.9), (2, 0.4)):
        first, second = {"loss": 1.0, "checkpoint": f"/{epoch}"}, {"accuracy": accuracy}
        for one in (first, second) if checkpoint_first else (second, first):
            held.report(epoch=epoch, **one)
    assert listed(held) == [(2, "/2", 0.4), (1, "/1", 0.9)]
    assert shown(held) == (1, 0.9)


def test_a_report_that_is_repeated_with_its_checkpoint_counts_by_its_value(service: Api) -> None:
    held = given(service, an_experiment(service))
    held.report(accuracy=0.9)
    report = {"sequence": 0, "metrics": {"accuracy": 0.9}, "checkpoint": "/late"}
    assert held.call("reports", body={"reports": [report]})["kept"] == ["/late"]
    assert saved(held, 0.4) == ["/late", "/1-1"]
    assert shown(held) == (1, 0.9)


def test_several_checkpoints_of_one_call_leave_the_best_and_the_newest(service: Api) -> None:
    held = given(service, an_experiment(service))
    reports = [
        {"sequence": number, "metrics": {"accuracy": value}, "checkpoint": f"/{number}"}
        for number, value in enumerate((0.5, 0.7, 0.6, 0.9))
    ]
    assert held.call("reports", body={"reports": reports})["kept"] == ["/3"], "also after one that kept two"


def test_a_lost_attempt_resumes_from_the_newest_and_its_successor_keeps_the_best(service: Api) -> None:
    name = an_experiment(service)
    first = given(service, name)
    saved(first, 0.5, 0.9, 0.7)
    first.fail("lost", "its node is gone")
    again = given(service, name)
    assert again.assignment["resume"] == {"uri": "/1-2", "step": 3}
    assert again.assignment["earlier_checkpoints"] == ["/1-1", "/1-2"]
    assert saved(again, 0.6) == ["/1-1", "/2-0"]
    assert saved(again, 0.95) == ["/2-1"]
    assert shown(again) == (5, 0.95)


def test_a_retried_trial_that_starts_again_keeps_the_best_of_its_earlier_attempt(service: Api) -> None:
    """Its function ignores the checkpoint, and its weights at a step are not those of the earlier attempt."""
    name = an_experiment(service, step_metric="epoch", failures={"max_retries": 1})
    first = given(service, name)
    for epoch, accuracy in enumerate((0.5, 0.9, 0.7), 1):
        first.report(epoch=epoch, accuracy=accuracy, checkpoint=f"/1-{epoch}")
    first.fail()
    again = given(service, name)
    assert again.report(epoch=1, accuracy=0.3, checkpoint="/2-1")["kept"] == ["/1-2", "/2-1"]
    assert again.report(epoch=2, accuracy=0.8, checkpoint="/2-2")["kept"] == ["/1-2", "/2-1"]
    assert again.report(epoch=3, accuracy=0.6, checkpoint="/2-3")["kept"] == ["/1-2", "/2-3"]
    assert (again.shown()["value"], shown(again)) == (0.9, (2, 0.9))
    assert listed(again) == [(3, "/2-3", 0.6), (2, "/1-2", 0.9)]


def test_one_that_is_better_than_the_earlier_attempts_best_at_the_step_replaces_it(service: Api) -> None:
    name = an_experiment(service, step_metric="epoch", failures={"max_retries": 1})
    first = given(service, name)
    first.report(epoch=1, accuracy=0.9, checkpoint="/1-1")
    first.report(epoch=2, accuracy=0.5, checkpoint="/1-2")
    first.fail()
    again = given(service, name)
    assert again.report(epoch=1, accuracy=0.95, checkpoint="/2-1")["kept"] == ["/2-1"]
    assert again.shown()["value"] == 0.9, "the first attempt's report of the step counts"
    assert shown(again) == (1, 0.95)


def test_the_best_one_stays_when_it_is_unpinned(service: Api) -> None:
    held = given(service, an_experiment(service))
    saved(held, 0.9, 0.4)
    for call in ("PUT", "DELETE"):
        service.call(call, f"/v1/trials/{held.trial}/checkpoints/1/pin", 200)
    held.finish()
    assert saved_steps(held) == [2, 1]


def saved_steps(held: Held) -> list[int]:
    return [step for step, _, _ in listed(held)]
