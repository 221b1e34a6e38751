"""`confirm`: what the best trial is, by the confirmations."""

import pytest

from tests.api.experiments.confirmed_search import (
    SEARCHED,
    asked,
    best,
    best_or_none,
    confirmed,
    ended,
    kinds,
    searched,
    shown,
    started,
)
from tests.conftest import Api

pytestmark = pytest.mark.slow


def test_the_best_is_the_one_with_the_best_mean_of_its_confirmations(service: Api) -> None:
    name = started(service)
    assert best_or_none(service, name) is None
    searched(service, name)
    assert (best(service, name)["number"], best(service, name)["confirmation"]["state"]) == (1, "running")
    confirmed(service, name, {1: [0.6, 0.61, 0.62], 3: [0.79, 0.8, 0.81]})
    found = best(service, name)
    assert (found["number"], found["value"]) == (3, 0.8)
    confirmation = found["confirmation"]
    assert confirmation["state"] == "complete"
    first, second = confirmation["ranking"]
    assert (first["number"], first["value"], first["n"]) == (3, 0.8, 3)
    assert (first["mean"], first["standard_error"]) == pytest.approx((0.8, 0.01 / 3**0.5))
    assert (second["number"], second["value"], second["mean"]) == (1, 0.9, pytest.approx(0.61))
    assert [one["seed"] for one in first["confirmations"]] == [1, 2, 3]
    assert confirmation["lead"]["runner_up"] == 1
    assert confirmation["lead"]["within_noise"] is False
    assert "more than noise" in confirmation["verdict"]
    assert shown(service, name)["best"]["number"] == 3


def test_the_best_says_when_the_lead_is_within_noise(service: Api) -> None:
    name = started(service)
    searched(service, name)
    confirmed(service, name, {1: [0.5, 0.7, 0.9], 3: [0.52, 0.69, 0.95]})
    confirmation = best(service, name)["confirmation"]
    assert confirmation["lead"]["within_noise"] is True
    assert confirmation["lead"]["p_value"] == pytest.approx(0.913, abs=0.001)
    assert "within noise (Welch's t-test, p=0.91)" in confirmation["verdict"]


def test_values_that_do_not_vary_with_the_seed_are_noticed(service: Api) -> None:
    name = started(service)
    searched(service, name)
    confirmed(service, name, {1: [0.9] * 3, 3: [0.8] * 3})
    confirmation = best(service, name)["confirmation"]
    assert confirmation["lead"]["within_noise"] is False
    assert "does the training function use config.seed?" in confirmation["verdict"]


def test_a_configuration_that_fails_with_another_seed_does_not_win(service: Api) -> None:
    name = started(service)
    searched(service, name)
    for _ in range(6):
        held = asked(service, name)
        one = held.shown()
        if one["confirms"] == 1 and one["seed"] == 2:
            held.fail("out_of_memory")
        else:
            ended(held, {1: 0.9, 3: 0.8}[one["confirms"]])
    found = best(service, name)
    assert found["number"] == 3
    assert [(one["number"], one["n"], one["failed_count"]) for one in found["confirmation"]["ranking"]] == [
        (3, 3, 0),
        (1, 2, 1),
    ]
    assert found["confirmation"]["lead"] is None


def test_a_winner_without_a_confirmation_that_counts_loses_to_no_other(service: Api) -> None:
    """The time limit of the experiment stops the confirmations of one configuration, and another one proved bad."""
    name = started(service, confirm={"top": 2, "seeds": 2}, limits={"max_trials": 6, "parallelism": 2})
    searched(service, name, [0.9, 0.8])
    good, bad = asked(service, name), asked(service, name)
    assert [one.shown()["confirms"] for one in (good, bad)] == [0, 1]
    good.report(accuracy=0.91)
    ended(bad, 0.1)
    service.http.patch(f"/v1/experiments/{name}", json={"limits": {"max_seconds": 1e-3}}).raise_for_status()
    good.finish("stopped")
    found = best(service, name)
    assert (found["number"], found["value"], shown(service, name)["best"]["number"]) == (0, 0.9, 0)
    assert found["confirmation"]["verdict"] == (
        "no confirmation of trial 0 has ended with a value that counts: the best trial is that of the search; "
        "trial 1 has mean 0.1 (n=1)"
    )


def test_a_former_winner_without_a_confirmation_that_counts_is_ranked_no_more(service: Api) -> None:
    """A time limit stops its confirmations; the search then goes on and finds two better ones."""
    limits = {"max_trials": 6, "parallelism": 4}
    name = started(service, confirm={"top": 2, "seeds": 2}, limits=limits)
    searched(service, name, [0.6, 0.5])
    service.http.patch(f"/v1/experiments/{name}", json={"limits": {"max_seconds": 1e-3}}).raise_for_status()
    assert shown(service, name)["end_reason"] == "max_seconds"
    more = {"max_seconds": None, "max_trials": 12}
    service.http.patch(f"/v1/experiments/{name}", json={"limits": more}).raise_for_status()
    searched(service, name, [0.7, 0.8])
    held = [asked(service, name) for _ in range(4)]
    for one in held:
        ended(one, {6: 0.7, 7: 0.6}[one.shown()["confirms"]])
    found = best(service, name)
    assert found["number"] == 6
    assert [one["number"] for one in found["confirmation"]["ranking"]] == [6, 7]
    assert "no confirmation of" not in found["confirmation"]["verdict"]


def test_infeasible_confirmations_count_as_failed(service: Api) -> None:
    name = started(service, constraints=[{"metric": "size", "max": 5}])
    for value in SEARCHED:
        held = asked(service, name)
        held.report(accuracy=value, size=1)
        held.finish()
    for _ in range(6):
        held = asked(service, name)
        held.report(accuracy=0.9, size=9 if held.shown()["confirms"] == 1 else 1)
        held.finish()
    ranking = best(service, name)["confirmation"]["ranking"]
    assert [(one["number"], one["n"], one["failed_count"]) for one in ranking] == [(3, 3, 0), (1, 0, 3)]


def test_the_events_say_which_trials_were_chosen_and_what_was_found(service: Api) -> None:
    name = started(service)
    searched(service, name)
    [confirming] = kinds(service, name, "experiment.confirming")
    assert confirming["reason"] == (
        "the search has ended (max_trials); its best trials by accuracy run again with other seeds: trial 1 (0.9), "
        "trial 3 (0.8)"
    )
    assert (confirming["seeds"], confirming["count"]) == ([1, 2, 3], 6)
    assert [one["number"] for one in confirming["chosen"]] == [1, 3]
    confirmed(service, name, {1: [0.6, 0.61, 0.62], 3: [0.79, 0.8, 0.81]})
    [found] = kinds(service, name, "experiment.confirmed")
    assert [one["number"] for one in found["ranking"]] == [3, 1]
    [created] = [one for one in kinds(service, name, "trial.created") if one["number"] == 4]
    assert (created["origin"], created["source"], created["confirms"], created["seed"]) == (
        "confirm",
        "confirmation",
        1,
        1,
    )
