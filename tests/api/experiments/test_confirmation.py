"""`confirm`: the winners of a search run again with other seeds, inside the budget."""

from typing import Any

import pytest

from service.settings import Settings
from tests.api.experiments.confirmed_search import (
    SEARCHED,
    asked,
    best,
    confirmations,
    confirmed,
    ended,
    searched,
    shown,
    started,
    trials,
)
from tests.conftest import Api, Held, running

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


def test_the_best_configurations_run_again_with_other_seeds_inside_the_budget(service: Api) -> None:
    name = started(service)
    searched(service, name)
    found = confirmations(service, name)
    assert [(one["confirms"], one["seed"]) for one in found] == [(1, 1), (3, 1), (1, 2), (3, 2), (1, 3), (3, 3)]
    params = {one["number"]: one["params"] for one in trials(service, name)}
    assert all(one["params"] == params[one["confirms"]] for one in found)
    assert (shown(service, name)["status"], shown(service, name)["ending"]) == ("running", True)
    confirmed(service, name, {1: [0.6, 0.61, 0.62], 3: [0.79, 0.8, 0.81]})
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    assert len(trials(service, name)) == 10


def test_each_trial_gets_its_seed_in_the_config(service: Api) -> None:
    name = started(service, config={"seed": 40})
    searched(service, name, SEARCHED[:3])
    last = asked(service, name)
    assert last.assignment["config"]["seed"] == last.shown()["seed"] == 40
    ended(last, 0.8)
    assert [asked(service, name).assignment["config"]["seed"] for _ in range(6)] == [41, 41, 42, 42, 43, 43]
    plain = asked(service, service.create()["name"])
    assert "seed" not in plain.assignment["config"]
    assert plain.shown()["seed"] is None


def test_confirmations_are_the_same_after_the_service_is_killed(settings: Settings) -> None:
    """They are queued in the transaction that ends the last trial of the search."""
    with running(settings) as first:
        name = started(first)
        searched(first, name)
        before = confirmations(first, name)
        held = asked(first, name)
    with running(settings) as second:
        assert [one["id"] for one in confirmations(second, name)] == [one["id"] for one in before]
        again = Held(second, held.assignment)
        ended(again, 0.6)
        assert asked(second, name).trial == before[1]["id"]


def test_a_confirmation_is_not_stopped_early_and_ends_nothing(service: Api) -> None:
    name = started(
        service,
        early_stopping={"rule": "threshold", "lower": 0.4},
        objectives=[{"metric": "accuracy", "direction": "maximize", "target": 0.95}],
    )
    searched(service, name)
    for value in (0.1, 0.99):
        held = asked(service, name)
        assert held.report(accuracy=value)["decision"] == "continue"
        held.finish()
    assert shown(service, name)["status"] == "running"
    assert shown(service, name)["end_reason"] == "max_trials"


def test_a_search_that_ends_by_its_target_or_without_improvement_is_confirmed_too(service: Api) -> None:
    target = [{"metric": "accuracy", "direction": "maximize", "target": 0.85}]
    limits = {"max_trials": 30, "parallelism": 10, "no_improvement": {"trials": 2}}
    for changes, reason in (({"objectives": target}, "target_reached"), ({"limits": limits}, "no_improvement")):
        name = started(service, **changes)
        other = asked(service, name)
        searched(service, name, [0.5, 0.9] if reason == "target_reached" else [0.9, 0.5, 0.5])
        assert confirmations(service, name) == []
        assert other.heartbeat()["decision"] == "stop"
        other.finish("stopped")
        assert len(confirmations(service, name)) == 6
        first, second = sorted({one["confirms"] for one in confirmations(service, name)})
        confirmed(service, name, {first: [0.5, 0.6, 0.7], second: [0.4, 0.5, 0.6]})
        assert (shown(service, name)["status"], shown(service, name)["end_reason"]) == ("completed", reason)


def test_an_exhausted_grid_is_confirmed(service: Api) -> None:
    space = {"n": {"type": "int", "low": 0, "high": 2}}
    name = started(service, space=space, search={"sampler": "grid"}, limits={"max_trials": 30})
    searched(service, name, [0.1, 0.2, 0.3])
    confirmed(service, name, {2: [0.3, 0.31, 0.32], 1: [0.2, 0.21, 0.22]})
    assert (shown(service, name)["status"], shown(service, name)["end_reason"]) == ("completed", "space_exhausted")
    assert len(trials(service, name)) == 9


def test_a_number_is_the_same_configuration_with_a_decimal_point_and_without(service: Api) -> None:
    name = started(service, enqueue=[{"lr": 1}, {"lr": 1.0}, {"lr": 0.2}])
    searched(service, name, [0.9, 0.95, 0.8, 0.1])
    assert {one["confirms"] for one in confirmations(service, name)} == {1, 2}


def test_a_configuration_that_was_tried_twice_is_confirmed_once(service: Api) -> None:
    name = started(service, enqueue=[{"lr": 0.1}, {"lr": 0.1}, {"lr": 0.2}])
    searched(service, name, [0.9, 0.8, 0.7, 0.1])
    assert {one["confirms"] for one in confirmations(service, name)} == {0, 2}


def test_an_experiment_without_a_value_has_nothing_to_confirm(service: Api) -> None:
    name = started(service)
    for _ in range(4):
        asked(service, name).fail("out_of_memory")
    assert (shown(service, name)["status"], shown(service, name)["end_reason"]) == ("failed", "too_many_failures")
    name = started(service)
    ended(asked(service, name), 0.5)
    for _ in range(3):
        asked(service, name).fail("out_of_memory")
    assert {one["confirms"] for one in confirmations(service, name)} == {0}
    confirmed(service, name, {0: [0.5, 0.6, 0.7]})
    assert best(service, name)["confirmation"]["lead"] is None
    assert shown(service, name)["status"] == "completed"


def test_an_end_before_the_confirmations_leaves_the_best_of_the_search(service: Api) -> None:
    name = started(service)
    ended(asked(service, name), 0.5)
    service.post(f"/v1/experiments/{name}/stop")
    assert (shown(service, name)["status"], best(service, name)["confirmation"]["state"]) == ("stopped", "none")
    name = started(service)
    searched(service, name)
    service.post(f"/v1/experiments/{name}/cancel")
    assert shown(service, name)["status"] == "stopped"
    assert best(service, name)["number"] == 1
    assert "no confirmation" in best(service, name)["confirmation"]["verdict"]


def test_a_paused_experiment_starts_its_confirmations_when_it_is_resumed(service: Api) -> None:
    name = started(service)
    searched(service, name, SEARCHED[:3])
    held = asked(service, name)
    service.post(f"/v1/experiments/{name}/pause")
    ended(held, 0.8)
    assert len(confirmations(service, name)) == 6
    assert service.ask(name) is None
    service.post(f"/v1/experiments/{name}/resume")
    assert asked(service, name).shown()["source"] == "confirmation"


def test_nothing_is_enqueued_while_winners_are_confirmed(service: Api) -> None:
    name = started(service)
    body = {"params": {"lr": 0.1}}
    for _ in range(4):
        service.post(f"/v1/experiments/{name}/trials", 201, json=body)
    refused = service.post(f"/v1/experiments/{name}/trials", 409, json=body)
    assert "of which confirm keeps 6" in refused["detail"]
    assert '{"limits": {"max_trials": 11}}' in refused["detail"]
    searched(service, name)
    refused = service.post(f"/v1/experiments/{name}/trials", 409, json=body)
    assert "its winners are being confirmed" in refused["detail"]


def test_nothing_is_enqueued_while_the_last_trials_of_an_exhausted_space_run(service: Api) -> None:
    space = {"n": {"type": "int", "low": 0, "high": 1}}
    name = started(service, space=space, search={"sampler": "grid"}, confirm={"top": 1, "seeds": 2})
    asked(service, name)
    last = asked(service, name)
    assert service.ask(name) is None
    refused = service.post(f"/v1/experiments/{name}/trials", 409, json={"params": {"n": 1}})
    assert refused["detail"].endswith(
        "has ended (space_exhausted) and its winners will be confirmed when its last trials have ended; every "
        "configuration has been tried, so it takes no more trials"
    )
    assert last.heartbeat()["decision"] == "continue"


def patched(service: Api, name: str, max_trials: int, status: int = 200) -> Any:
    path = f"/v1/experiments/{name}"
    response = service.http.patch(path, json={"limits": {"max_trials": max_trials}})
    assert response.status_code == status, response.text
    return response.json()


def test_a_search_continues_when_its_limit_is_raised_while_winners_are_confirmed(service: Api) -> None:
    name = started(service)
    searched(service, name)
    problem = patched(service, name, 16, 409)  # 6 trials confirm, and 6 more are kept for confirmations
    assert "set limits.max_trials to at least 17 (confirmations count, too)" in problem["detail"]
    assert shown(service, name)["spec"]["limits"]["max_trials"] == 10
    patched(service, name, 17)
    assert shown(service, name)["end_reason"] is None
    patched(service, name, 18)
    assert shown(service, name)["end_reason"] is None
    confirmed(service, name, {1: [0.6, 0.61, 0.62], 3: [0.79, 0.8, 0.81]})
    searched(service, name, [0.95, 0.1])
    added = confirmations(service, name)[6:]
    assert [one["confirms"] for one in added] == [10] * 3, "the other one of the best two is confirmed already"
    confirmed(service, name, {10: [0.94, 0.95, 0.96]})
    assert shown(service, name)["status"] == "completed"
    assert [one["number"] for one in best(service, name)["confirmation"]["ranking"]] == [10, 3, 1]


def searched_with_a_lowered_limit(service: Api) -> str:
    """It has room for four of the six confirmations."""
    name = started(service)
    searched(service, name, SEARCHED[:3])
    last = asked(service, name)
    patched(service, name, 8)
    ended(last, 0.8)
    return name


def test_a_limit_that_was_too_low_for_all_confirmations_may_be_raised_for_them(service: Api) -> None:
    name = searched_with_a_lowered_limit(service)
    assert len(confirmations(service, name)) == 4
    patched(service, name, 10)
    for _ in range(4):
        ended(asked(service, name), 0.5)
    assert len(confirmations(service, name)) == 6


def test_a_lowered_limit_leaves_fewer_confirmations(service: Api) -> None:
    name = searched_with_a_lowered_limit(service)
    found = confirmations(service, name)
    assert [(one["confirms"], one["seed"]) for one in found] == [(1, 1), (3, 1), (1, 2), (3, 2)]


def test_the_search_does_not_learn_from_confirmations(service: Api) -> None:
    name = started(service, search={"sampler": "tpe", "seed": 1, "options": {"n_startup_trials": 6}})
    searched(service, name)
    patched(service, name, 20)
    confirmed(service, name, {1: [0.6, 0.61, 0.62], 3: [0.79, 0.8, 0.81]})
    searched(service, name, [0.3, 0.4])
    assert [one["source"] for one in trials(service, name)[10:]] == ["start_up", "start_up"]
    assert asked(service, name).shown()["source"] == "model"


def test_a_new_rule_and_a_replay_judge_the_search_alone(service: Api) -> None:
    rule = {"rule": "asha", "min_step": 1, "reduction_factor": 2}
    name = started(service, limits={"max_trials": 12, "parallelism": 10})
    searched(service, name, [0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    confirmed(service, name, {5: [0.97, 0.98, 0.99], 4: [0.97, 0.98, 0.99]})
    found = service.post(f"/v1/experiments/{name}/replay", json={"early_stopping": rule})
    assert (found["trial_count"], found["best"]["number"]) == (6, 5)
    changes = {"early_stopping": rule, "limits": {"max_trials": 20}}
    response = service.http.patch(f"/v1/experiments/{name}", json=changes)
    assert response.status_code == 200
    decision = asked(service, name).report(accuracy=0.65)
    assert decision["decision"] == "continue", "0.65 is among the best half of the search, not of the confirmations"


def test_a_confirmed_experiment_can_be_reopened(service: Api) -> None:
    limits = {"max_trials": 10, "parallelism": 10, "no_improvement": {"trials": 5}}
    name = started(service, limits=limits)
    searched(service, name)
    confirmed(service, name, {1: [0.6, 0.61, 0.62], 3: [0.79, 0.8, 0.81]})
    refused = patched(service, name, 16, status=409)
    assert "all 4 trials of the search have ended" in refused["detail"]
    assert "limits.max_trials is 16, of which confirm keeps 6" in refused["detail"]
    patched(service, name, 17)
    searched(service, name, [0.2])
    assert shown(service, name)["status"] == "completed", "the same two are the best"
    assert len(trials(service, name)) == 11


def test_a_failed_confirmation_can_be_retried(service: Api) -> None:
    name = started(service)
    searched(service, name)
    held = asked(service, name)
    held.fail("out_of_memory")
    service.post(f"/v1/trials/{held.trial}/retry")
    confirmed(service, name, {1: [0.6, 0.61, 0.62], 3: [0.79, 0.8, 0.81]})
    assert [one["n"] for one in best(service, name)["confirmation"]["ranking"]] == [3, 3]


def test_a_confirmation_that_a_user_stops_is_in_no_mean(service: Api) -> None:
    name = started(service)
    searched(service, name)
    held = asked(service, name)
    held.report(accuracy=0.1)
    service.post(f"/v1/trials/{held.trial}/stop")
    held.finish("stopped")
    for _ in range(5):
        ended(asked(service, name), 0.6)
    ranking = {one["number"]: (one["n"], one["failed_count"]) for one in best(service, name)["confirmation"]["ranking"]}
    assert ranking == {1: (2, 0), 3: (3, 0)}


@pytest.mark.databases("sqlite", "postgresql")
def test_confirmations_are_no_observations_of_a_later_search(service: Api) -> None:
    name = started(service)
    searched(service, name)
    confirmed(service, name, {1: [0.6, 0.61, 0.62], 3: [0.79, 0.8, 0.81]})
    later = service.create(search={"sampler": "tpe", "warm_start": [name]})
    assert shown(service, later["name"])["warm_start"][0]["taken"] == 4
    assert service.get(f"/v1/experiments/{name}/importance")["trial_count"] == 4


@pytest.mark.databases("sqlite", "postgresql")
def test_failures_of_the_search_do_not_end_the_confirmation_of_its_winner(service: Api) -> None:
    """The only other trial was stopped by a user: it has a value, but did not run to its end."""
    name = started(service, confirm={"top": 1, "seeds": 2}, limits={"max_trials": 4, "parallelism": 4})
    asked(service, name).fail()
    held = asked(service, name)
    held.report(accuracy=0.5)
    service.post(f"/v1/trials/{held.trial}/stop")
    held.finish("stopped")
    assert [one["status"] for one in confirmations(service, name)] == ["queued"] * 2
    service.http.patch(f"/v1/experiments/{name}", json={"tags": {"team": "a"}}).raise_for_status()
    assert [one["status"] for one in confirmations(service, name)] == ["queued"] * 2
    confirmed(service, name, {1: [0.4, 0.5]})
    assert (shown(service, name)["status"], shown(service, name)["end_reason"]) == ("completed", "max_trials")
