"""Reports of trials that had been asked to stop are not judged: neither live, nor by a replay or a later rule."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from service.operations.early_stopping.recorded_milestones import MilestonesMissing, RecordedMilestones, catch_up
from service.operations.time_limits import enforce_time_limits
from service.runtime.context import Context
from service.store.tables import EventRow, MilestoneRow
from tests.conftest import Api, Held
from tests.store.leased_trials import let_pass

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

RULE = {"rule": "asha", "reduction_factor": 3, "metric": "score", "direction": "maximize"}


def diverged(_service: Api, held: Held) -> None:
    held.report(accuracy="NaN", score=0.9)
    held.fail()


def with_an_objective_of_text(_service: Api, held: Held) -> None:
    held.report(accuracy="good", score=0.9)
    held.fail()


def stopped_by_a_user(service: Api, held: Held) -> None:
    service.post(f"/v1/trials/{held.trial}/stop")
    held.report(accuracy=0.9, score=0.9)
    held.finish("stopped")


def out_of_time(service: Api, held: Held) -> None:
    let_pass(service.app.state.context, 51)
    enforce_time_limits(service.app.state.context)
    held.report(accuracy=0.9, score=0.9)
    held.finish("stopped")


ENDS: list[Callable[[Api, Held], None]] = [diverged, with_an_objective_of_text, stopped_by_a_user, out_of_time]


def an_experiment(service: Api, end: Callable[[Api, Held], None]) -> str:
    """Its first trial reports a good value, which is not judged, and the others report worse ones."""
    limits = {"max_trials": 9, "parallelism": 9, "max_trial_seconds": 50}
    name: str = service.create(early_stopping=RULE, limits=limits)["name"]
    end(service, asked(service, name))
    for score in (0.5, 0.4):
        asked(service, name).report(accuracy=score, score=score)
    return name


def asked(service: Api, name: str) -> Held:
    held = service.ask(name)
    assert held
    return held


def decided(service: Api, name: str) -> list[tuple[int, str]]:
    """The decisions of all trials."""
    numbers = {trial["id"]: trial["number"] for trial in service.get(f"/v1/experiments/{name}/trials")["items"]}
    events = [event for event in service.events(name) if event["kind"] == "decision"]
    return [(numbers[event["trial"]], event["data"]["decision"]) for event in events]


def replayed_stops(service: Api, name: str) -> list[int]:
    answer = service.post(f"/v1/experiments/{name}/replay", json={"early_stopping": RULE})
    return [stop["number"] for stop in answer["stopped"]]


def milestones(service: Api) -> list[tuple[Any, ...]]:
    columns = MilestoneRow.number, MilestoneRow.milestone, MilestoneRow.value, MilestoneRow.pool
    with service.app.state.context.database.read() as session:
        return sorted(tuple(row) for row in session.execute(select(*columns)))


@pytest.mark.parametrize("end", ENDS)
def test_a_replay_of_the_experiments_own_rule_does_not_judge_them_either(
    service: Api, end: Callable[[Api, Held], None]
) -> None:
    name = an_experiment(service, end)
    assert decided(service, name) == [(1, "continue"), (2, "stop")]
    assert replayed_stops(service, name) == [2]


@pytest.mark.parametrize("end", ENDS)
def test_they_reach_no_milestone_of_a_later_rule(service: Api, end: Callable[[Api, Held], None]) -> None:
    name = an_experiment(service, end)
    live = milestones(service)
    assert [number for number, *_ in live] == [1, 2]
    changed_to_another_rule_and_back(service, name)
    assert milestones(service) == live


def test_a_trial_that_diverged_and_is_retried_is_judged_again(service: Api) -> None:
    name = an_experiment(service, diverged)
    first = service.get(f"/v1/experiments/{name}/trials")["items"][0]
    service.post(f"/v1/trials/{first['id']}/retry")
    again = asked(service, name)
    for score in (0.1, 0.2, 0.3):
        again.report(accuracy=0.1, score=score)
    assert decided(service, name) == [(1, "continue"), (2, "stop"), (0, "continue")]
    as_of_an_earlier_version(service)
    other = asked(service, name)
    for score in (0.6, 0.2, 0.2):
        other.report(accuracy=0.1, score=score)
    assert decided(service, name)[-1] == (3, "stop")
    assert replayed_stops(service, name) == [2, 3]


def test_a_replay_finds_the_reports_by_which_trials_diverged_in_events_of_an_earlier_version(service: Api) -> None:
    name = an_experiment(service, diverged)
    as_of_an_earlier_version(service)
    assert replayed_stops(service, name) == [2]


def test_a_later_rule_finds_the_reports_by_which_trials_diverged_in_events_of_an_earlier_version(service: Api) -> None:
    name = an_experiment(service, diverged)
    live = milestones(service)
    as_of_an_earlier_version(service)
    changed_to_another_rule_and_back(service, name)
    assert milestones(service) == live


def test_it_finds_them_also_if_the_trial_reports_on_while_the_history_is_read(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = service.create(early_stopping=RULE, limits={"max_trials": 9, "parallelism": 9})["name"]
    held = asked(service, name)
    held.report(accuracy="NaN", score=0.9)
    as_of_an_earlier_version(service)

    def read_slowly(context: Context, missing: MilestonesMissing) -> None:
        catch_up(context, missing)
        held.report(accuracy=0.5, score=0.9)
        as_of_an_earlier_version(service)

    monkeypatch.setattr(RecordedMilestones, "is_behind", lambda known, *_: known.last_event == 0)
    monkeypatch.setattr("service.operations.early_stopping.recorded_milestones.catch_up", read_slowly)
    changed_to_another_rule_and_back(service, name)
    assert milestones(service) == []


def changed_to_another_rule_and_back(service: Api, name: str) -> None:
    for rule in ({"rule": "none"}, RULE):
        service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": rule}).raise_for_status()


def as_of_an_earlier_version(service: Api) -> None:
    """Its reports do not say whether they were judged."""
    with service.app.state.context.database.write() as session:
        for event in session.scalars(select(EventRow).where(EventRow.kind == "report")):
            event.data = {key: value for key, value in event.data.items() if key != "judged"}
