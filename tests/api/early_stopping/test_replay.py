"""Replays of early-stopping rules on recorded curves; a replay of the experiment's own rule repeats its decisions."""

import random
from typing import Any

import pytest

from search.early_stopping.rules.asha import Asha
from service.errors import Invalid
from service.operations.early_stopping import replay
from tests.conftest import Api, Held

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

RULES: list[dict[str, Any]] = [
    {"rule": "none"},
    {"rule": "asha", "reduction_factor": 2},
    {"rule": "asha", "reduction_factor": 2, "grace_steps": 3},
    {"rule": "hyperband", "max_step": 6, "reduction_factor": 2},
    {"rule": "hyperband", "max_step": 6, "reduction_factor": 2, "weighted": True},
    {
        "rule": "hyperband",
        "max_step": 6,
        "reduction_factor": 2,
        "weighted": True,
        "metric": "loss",
        "direction": "minimize",
    },
    {"rule": "median", "n_startup_trials": 2},
    {"rule": "percentile", "percentile": 70, "n_startup_trials": 1, "n_warmup_steps": 1, "interval_steps": 2},
    {"rule": "threshold", "lower": 0.2},
    {"rule": "patient", "patience": 0, "wrapped_rule": {"rule": "asha", "reduction_factor": 2}},
    {"rule": "patient", "patience": 1, "min_delta": 0.01, "wrapped_rule": {"rule": "median", "n_startup_trials": 1}},
    {"rule": "patient", "patience": 1},
    {"rule": "wilcoxon", "p_threshold": 0.3},
    {"rule": "median", "n_startup_trials": 2, "metric": "loss", "direction": "minimize"},
    {"rule": "wilcoxon", "p_threshold": 0.3, "metric": "loss", "direction": "minimize"},
]
STOP = ("step", "milestone", "value", "cutoff", "compared_count", "compared_with", "reason")


def simulated(service: Api, seed: int = 5, *, trials: int = 10, steps: int = 6, **changes: Any) -> str:
    """An experiment whose trials, four at a time, report in a random order until they are stopped or complete."""
    chance = random.Random(seed)  # noqa: S311 - a simulation
    name: str = service.create(limits={"max_trials": trials, "parallelism": 4}, **changes)["name"]
    running: list[tuple[Held, float, float, int]] = []
    while True:
        while len(running) < 4 and (held := asked(service, name)):
            running.append((held, chance.random(), chance.uniform(-0.6, 0.6), 0))
        if not running:
            return name
        place = chance.randrange(len(running))
        held, quality, trend, step = running.pop(place)
        value = quality + trend * step / steps + 0.1 * chance.random()
        answer = held.report(accuracy=value, loss=1 - value + 0.1 * chance.random())
        if answer["decision"] == "stop" or step + 1 == steps:
            held.finish("stopped" if answer["decision"] == "stop" else "completed")
        else:
            running.insert(place, (held, quality, trend, step + 1))


def asked(service: Api, name: str) -> Held | None:
    response = service.http.post(f"/v1/experiments/{name}/ask")
    return Held(service, response.json()) if response.status_code == 200 else None


def replayed(service: Api, name: str, rule: dict[str, Any], status: int = 200) -> Any:
    return service.post(f"/v1/experiments/{name}/replay", status, json={"early_stopping": rule})


def trials_of(service: Api, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.get(f"/v1/experiments/{name}/trials")["items"]
    return found


def stops_of(service: Api, name: str) -> dict[int, Any]:
    """The decisions that ended trials, by number."""
    decisions = {
        trial["number"]: service.get(f"/v1/trials/{trial['id']}/decisions")["items"]
        for trial in trials_of(service, name)
    }
    return {number: [one for one in all_ if one["decision"] == "stop"] for number, all_ in decisions.items() if all_}


def facts(decision: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(decision[fact] for fact in STOP)


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize(
    "rule",
    [*RULES[:2], *(pytest.param(rule, marks=pytest.mark.slow) for rule in RULES[2:])],
    ids=lambda rule: "-".join(str(value) for value in rule.values())[:40],
)
def test_a_replay_of_the_experiments_own_rule_repeats_its_decisions(service: Api, rule: dict[str, Any]) -> None:
    name = simulated(service, early_stopping=rule)
    answer = replayed(service, name, rule)
    taken = {number: facts(stop) for number, stops in stops_of(service, name).items() for stop in stops}
    assert {stop["number"]: facts(stop) for stop in answer["stopped"]} == taken
    assert answer["stopped_count"] == answer["cut_short_count"] == len(taken)
    assert bool(taken) == (rule["rule"] != "none")
    assert (answer["steps_saved"], answer["unknown_count"], answer["best_lost"]) == (0, 0, False)


@pytest.fixture
def whole(service: Api) -> str:
    """Four trials that ran to their ends, one after another: the second is slow and the best."""
    name: str = service.create(limits={"max_trials": 4, "parallelism": 1})["name"]
    for curve in ([0.5, 0.6, 0.6, 0.6], [0.1, 0.2, 0.8, 0.9], [0.55, 0.7, 0.7, 0.7], [0.6, 0.1, 0.1, 0.3]):
        held = service.ask(name)
        assert held
        for value in curve:
            held.report(accuracy=value, loss=-value)
        held.finish()
    return name


def test_a_replay_shows_which_trials_when_why_and_at_what_cost(service: Api, whole: str) -> None:
    answer = replayed(service, whole, {"rule": "asha", "min_step": 2, "reduction_factor": 2})
    assert [(stop["number"], stop["step"], stop["steps_saved"], stop["status"]) for stop in answer["stopped"]] == [
        (1, 2, 2, "completed"),
        (3, 2, 2, "completed"),
    ]
    assert answer["stopped"][0]["reason"] == (
        "accuracy 0.2 at step 2 is below 0.6, the cutoff of the best half of 2 trials (this one included) at rung 2"
    )
    assert answer["stopped"][1]["compared_with"] == [2, 0, 1]
    assert (answer["trial_count"], answer["step_count"]) == (4, 16)
    assert (answer["steps_saved"], answer["fraction_saved"]) == (4, 0.25)
    assert (answer["best"]["number"], answer["best"]["value"], answer["best_lost"]) == (1, 0.9, True)
    assert (answer["best_then"]["number"], answer["best_then"]["value"]) == (2, 0.7)
    assert (answer["cut_short_count"], answer["unknown_count"]) == (0, 0)


def test_a_stopped_trial_is_not_among_the_completed_ones_that_others_are_compared_with(
    service: Api, whole: str
) -> None:
    rule = {"rule": "median", "n_startup_trials": 1}
    stopped = replayed(service, whole, rule)["stopped"]
    assert [(stop["number"], stop["step"], stop["compared_with"]) for stop in stopped] == [(1, 1, [0]), (3, 2, [2, 0])]


def test_a_replay_can_use_any_reported_metric(service: Api, whole: str) -> None:
    rule = {"rule": "asha", "min_step": 2, "reduction_factor": 2, "metric": "loss", "direction": "minimize"}
    answer = replayed(service, whole, rule)
    assert (answer["metric"], answer["direction"]) == ("loss", "minimize")
    assert [stop["number"] for stop in answer["stopped"]] == [1, 3]
    assert (answer["best"]["number"], answer["best_then"]["number"]) == (1, 2)
    problem = replayed(service, whole, rule | {"metric": "val_loss"}, 422)
    assert problem["detail"] == "early_stopping.metric: val_loss was never reported; known here: accuracy, loss"


def test_the_rest_of_curves_that_were_cut_short_is_unknown(service: Api) -> None:
    name = simulated(service, early_stopping={"rule": "asha", "reduction_factor": 2})
    cut = sum(trial["status"] == "pruned" for trial in trials_of(service, name))
    answer = replayed(service, name, {"rule": "none"})
    assert (answer["stopped_count"], answer["cut_short_count"], answer["unknown_count"]) == (0, cut, cut)


def test_the_report_that_reaches_the_target_is_not_judged(service: Api) -> None:
    rule = {"rule": "threshold", "upper": 0.8}
    objectives = [{"metric": "accuracy", "direction": "maximize", "target": 0.9}]
    name = service.create(objectives=objectives, early_stopping=rule)["name"]
    lucky, other = service.ask(name), service.ask(name)
    assert lucky
    assert other
    lucky.report(accuracy=0.95)
    other.report(accuracy=0.85)
    assert stops_of(service, name) == {}
    assert replayed(service, name, rule)["stopped"] == []


def test_a_replay_of_an_experiment_without_reports_is_empty(service: Api) -> None:
    answer = replayed(service, service.create()["name"], {"rule": "asha"})
    assert (answer["stopped"], answer["best"], answer["fraction_saved"]) == ([], None, 0)


def test_a_wrong_rule_gets_every_mistake_and_changes_nothing(service: Api, whole: str) -> None:
    before = service.events(whole)
    problem = replayed(service, whole, {"rule": "asha", "min_step": 0, "eta": 3}, 422)
    assert {error["path"] for error in problem["errors"]} == {"early_stopping.min_step", "early_stopping.eta"}
    problem = replayed(service, whole, {"rule": "asha", "metric": "loss"}, 422)
    assert {error["path"] for error in problem["errors"]} == {"early_stopping.direction"}
    service.post("/v1/experiments/none-such/replay", 404, json={"early_stopping": {}})
    assert service.events(whole) == before


@pytest.mark.parametrize("rule", [{"rule": "median", "n_startup_trials": 1}, {"rule": "hyperband", "max_step": 6}])
def test_a_rule_set_later_knows_the_earlier_reports(service: Api, rule: dict[str, Any]) -> None:
    """An experiment that gets the rule later decides as one that had it from the start."""
    rule = rule | {"grace_steps": 4}
    names = [service.create(early_stopping=one)["name"] for one in (rule, {"rule": "threshold", "lower": -9})]
    for curve in ([0.5, 0.6, 0.6], [0.7, 0.8, 0.8], [0.6, 0.7, 0.7]):
        for name in names:
            held = service.ask(name)
            assert held
            for value in curve:
                held.report(accuracy=value)
            held.finish()
    trials = [service.ask(name) for name in names]
    for held in trials:
        assert held
        held.report(accuracy=0.61)
        held.report(accuracy=0.62)
    service.http.patch(f"/v1/experiments/{names[1]}", json={"early_stopping": rule}).raise_for_status()
    for held in trials:
        assert held
        for value in (0.65, 0.1, 0.1, 0.1):
            held.report(accuracy=value)
    decided = [
        [facts(one) for one in service.get(f"/v1/trials/{held.trial}/decisions")["items"] if one["step"] > 2]
        for held in trials
        if held
    ]
    assert decided[0] == decided[1]
    assert decided[0]


def test_an_experiment_with_too_many_reports_is_not_replayed(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_REPORTS", 2)  # the service replays in another process
    database, name = service.app.state.context.database, service.create()["name"]
    held = service.ask(name)
    assert held
    for value in (0.1, 0.2):
        held.report(accuracy=value)
    assert replay.replay_experiment(database, name, Asha()).courses[0].step_count == 2
    held.report(accuracy=0.3)
    with pytest.raises(Invalid, match="the experiment has more than 2 reports; a replay takes no more"):
        replay.replay_experiment(database, name, Asha())


def test_trials_that_all_diverged_have_nothing_to_replay(service: Api) -> None:
    """Their metric was reported, although never as a number."""
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy="NaN")
    held.finish("completed")
    answer = replayed(service, name, {"rule": "asha"})
    assert (answer["stopped"], answer["steps_saved"], answer["best"]) == ([], 0, None)
