"""Brackets that follow from what has completed are stored with their trials, and hold whatever happens later."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from search.early_stopping.rules.hyperband import Hyperband
from service.settings import Settings
from service.store.sql.database import Database
from service.store.tables import TrialRow
from tests.api.early_stopping.promotion import asked, decisions, given, patched, run_out, train, trials
from tests.conftest import Api, Held, running

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

STEPS = 8
RULE = {"rule": "hyperband", "max_step": STEPS, "reduction_factor": 2, "weighted": True}
BY_NUMBER = Hyperband(max_step=STEPS, reduction_factor=2)
Value = Callable[[int, int], float]
"""Of the trial's number and the step."""


def misleads(number: int, step: int) -> float:
    """The ranks of the first two steps are those of the end, reversed."""
    return float(-number if step <= 2 else number)


def started(service: Api, max_trials: int = 30, **changes: Any) -> str:
    limits = {"max_trials": max_trials, "parallelism": 8}
    name: str = service.create(**{"early_stopping": RULE, "limits": limits, "search": {"seed": 1}} | changes)["name"]
    return name


def run(held: Held, value: Value) -> None:
    """Each call has the reports up to the next rung."""
    for first, last in ((1, 1), (2, 2), (3, 4), (5, STEPS)):
        reports = [
            {"sequence": step - 1, "metrics": {"accuracy": value(held.assignment["number"], step)}}
            for step in range(first, last + 1)
        ]
        if held.call("reports", 200, {"reports": reports})["decision"] == "stop":
            held.finish("stopped")
            return
    held.finish()


def ran(service: Api, name: str, count: int, value: Value = misleads) -> None:
    for _ in range(count):
        run(given(service, name), value)


def brackets(service: Api, name: str) -> list[dict[str, Any]]:
    return [service.get(f"/v1/trials/{one['id']}")["bracket"] for one in trials(service, name)]


def numbers(service: Api, name: str) -> list[int]:
    return [one["number"] for one in brackets(service, name)]


def test_a_trial_says_which_bracket_it_got_and_why(service: Api) -> None:
    name = started(service)
    ran(service, name, 20)
    first, last = (brackets(service, name)[at] for at in (0, -1))
    assert (first["weight"], first["trial_count"]) == (1.0, 0)
    assert first["first_step"] == 2 ** first["number"]
    completed = sum(one["status"] == "completed" for one in trials(service, name))
    assert last["trial_count"] in {0, completed, completed - 1}
    known = [one for one in brackets(service, name)[-6:] if one["number"] < 2]
    assert all(one["agreement"] < 0.5 and one["weight"] < 1 for one in known)
    created = [one["data"] for one in service.events(name) if one["kind"] == "trial.created"]
    assert [one["bracket"]["number"] for one in created] == numbers(service, name)
    for one in decisions(service, name, "stop", "continue"):
        assert f"of bracket {numbers(service, name)[one['number']]}" in one["reason"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # long, and no database makes a difference
def test_brackets_whose_first_rung_misleads_get_few_trials(service: Api) -> None:
    misled, right = started(service, 60), started(service, 60)
    ran(service, misled, 60)
    ran(service, right, 60, lambda number, _step: float(number))
    low = [sum(number < 2 for number in numbers(service, name)[20:]) for name in (misled, right)]
    assert low[0] < 12
    assert low[1] > 28


@pytest.mark.parametrize("promote", [False, True])
def test_a_restarted_service_continues_with_the_same_brackets(
    service: Api, settings: Settings, *, promote: bool
) -> None:
    rule = RULE | {"promote": promote}
    undisturbed, restarted = started(service, early_stopping=rule), started(service, early_stopping=rule)
    values = [0.1 * (7 * number % 10) for number in range(30)]
    run_out(service, undisturbed, values)
    for _ in range(9):
        held = given(service, restarted)
        train(held, values[held.assignment["number"]], STEPS)
    with running(settings) as other:
        run_out(other, restarted, values)
        assert numbers(other, restarted) == numbers(service, undisturbed)
        said = [decisions(other, name, "stop", "pause", "promote", "continue") for name in (restarted, undisturbed)]
        assert len(said[0]) > 30
        assert [(one["number"], one["reason"]) for one in said[0]] == [
            (one["number"], one["reason"]) for one in said[1]
        ]


def test_a_replay_of_the_rule_draws_the_brackets_that_are_stored(service: Api) -> None:
    name = started(service)
    ran(service, name, 25)
    stopped = {one["number"]: one["milestone"] for one in decisions(service, name, "stop")}
    for rule in (RULE, RULE | {"grace_steps": 1}):  # the second is another rule, which draws the brackets itself
        answer = service.post(f"/v1/experiments/{name}/replay", json={"early_stopping": rule})
        assert {one["number"]: one["milestone"] for one in answer["stopped"]} == stopped


def test_a_trial_keeps_its_bracket_when_the_rule_is_changed(service: Api) -> None:
    name = started(service)
    ran(service, name, 10)
    before = numbers(service, name)
    patched(service, name, early_stopping=RULE | {"weighted": False})
    assert numbers(service, name) == [BY_NUMBER.bracket_of(number) for number in range(10)]
    assert {one["share"] for one in brackets(service, name)} == {None}
    ran(service, name, 5)
    patched(service, name, early_stopping=RULE)
    assert numbers(service, name)[:10] == before
    assert numbers(service, name)[10:] == [BY_NUMBER.bracket_of(number) for number in range(10, 15)]
    ran(service, name, 5)
    assert {one["trial_count"] for one in brackets(service, name)[15:]} != {0, None}
    own = numbers(service, name)
    for one in decisions(service, name, "stop", "continue"):
        if one["number"] >= 15:
            assert {own[other] for other in one["compared_with"]} <= {own[one["number"]]}


@pytest.mark.databases("sqlite", "postgresql")
def test_trials_of_an_earlier_version_have_the_bracket_of_their_number(service: Api, settings: Settings) -> None:
    name = started(service)
    ran(service, name, 6)
    database = Database(settings.database_url)
    with database.write() as session:
        session.execute(update(TrialRow).values(bracket=None))
    database.close()
    assert numbers(service, name) == [BY_NUMBER.bracket_of(number) for number in range(6)]
    ran(service, name, 3)
    assert brackets(service, name)[-1]["share"] is not None


@pytest.mark.databases("sqlite", "postgresql")
def test_a_paused_trial_that_a_weighted_rule_would_not_have_compared_there_continues(service: Api) -> None:
    rule = RULE | {"promote": True, "weighted": False, "extra_count": 0}
    name = started(service, early_stopping=rule)
    held = given(service, name)
    while BY_NUMBER.bracket_of(held.assignment["number"]) != 0:
        held = given(service, name)
    assert held.report(accuracy=0.5, checkpoint="/1")["decision"] == "stop"
    held.finish("stopped")
    # No longer compared at step 1 by the new rule, whose rungs are recorded from there on.
    patched(service, name, early_stopping=rule | {"min_step": 2, "weighted": True})
    assert service.get(f"/v1/trials/{held.trial}")["status"] == "queued"


def test_an_enqueued_trial_and_a_confirmation_have_no_evidence_and_no_bracket(service: Api) -> None:
    limits = {"max_trials": 6, "parallelism": 1}
    name = started(service, limits=limits, confirm={"top": 1, "seeds": 2}, enqueue=[{"lr": 0.01}])
    while (held := asked(service, name)) is not None:
        run(held, lambda number, _step: float(number))
    details = [service.get(f"/v1/trials/{one['id']}") for one in trials(service, name)]
    confirmations = [one["bracket"] for one in details if one["confirms"] is not None]
    assert confirmations == [None, None]
    assert brackets(service, name)[0]["trial_count"] == 0
