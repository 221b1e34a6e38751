"""`search: auto` over HTTP: the service chooses the sampler and the stopping rule, says why, and may choose again."""

import random
from dataclasses import replace
from typing import Any

import pytest

from service.settings import Settings
from tests.api.early_stopping.chosen_rules import LIMITS, STEPS, STOPPING, chosen, created, ran, rule
from tests.api.early_stopping.promotion import asked, decisions, experiment, given, patched, train, trials
from tests.conftest import Api, a_spec, running

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

LR = {"type": "float", "low": 0, "high": 1}
PROMOTING = STOPPING | {"promote": True, "extra_count": 1}
UNDECIDED = {"rule": "auto", "max_step": None}


def test_one_word_leaves_both_to_the_service(service: Api) -> None:
    shown = created(service)
    assert shown["spec"]["search"]["sampler"] == "auto"
    assert shown["spec"]["early_stopping"] == UNDECIDED
    assert (shown["sampler"]["name"], shown["early_stopping"]["name"]) == ("gp", "auto")
    assert "until the first trial has run to the end" in shown["early_stopping"]["why"]
    [event] = chosen(service, shown["name"])
    assert event["sampler"] == {"name": "gp", "why": shown["sampler"]["why"]}
    assert event["early_stopping"] == {"options": UNDECIDED, "why": shown["early_stopping"]["why"]}
    previewed = service.post("/v1/spaces/preview", json={"space": {"lr": LR}, "search": "auto", "limits": LIMITS})
    assert previewed["early_stopping"] == shown["early_stopping"]


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize(
    ("trains", "wanted", "reason"),
    [
        (
            {"saves_every": 1},
            PROMOTING,
            "and saved checkpoints, and a start takes 1 s, and a whole training 90 s",
        ),
        ({"saves_every": 2}, PROMOTING | {"min_step": 2}, "may be promoted later"),
        ({"saves_every": 4}, STOPPING, "because it trained 4 steps without saving a checkpoint"),
        ({"saves_at": 1}, STOPPING, f"because it trained {STEPS - 1} steps without saving a checkpoint"),
        ({}, STOPPING, "because it saved no checkpoint to continue from"),
        (
            {"steps": 1, "saves_every": 1},
            {"rule": "none"},
            "made 1 report up to step 1; trials are compared from 3 reports",
        ),
        (
            {"steps": 2},
            {"rule": "none"},
            "made 2 reports up to step 2; trials are compared from 3 reports and",
        ),
    ],
)
def test_the_first_whole_trial_decides_on_the_rule(
    service: Api, trains: dict[str, Any], wanted: dict[str, Any], reason: str
) -> None:
    name = created(service)["name"]
    ran(given(service, name), **trains)
    assert rule(service, name) == wanted
    shown = experiment(service, name)
    assert reason in shown["early_stopping"]["why"]
    assert shown["spec"]["early_stopping"]["rule"] == wanted["rule"]
    assert "including trials that are stopped early" in chosen(service, name)[0]["sampler"]["why"]
    assert ("stopped early" in shown["sampler"]["why"]) == (wanted["rule"] != "none")
    before, after = chosen(service, name)
    assert (before["training"], after["training"]["number"]) == (None, 0)
    assert after["early_stopping"] == {
        "options": shown["spec"]["early_stopping"],
        "why": shown["early_stopping"]["why"],
    }
    assert after["sampler"]["name"] == shown["sampler"]["name"]
    changes = [event["data"] for event in service.events(name) if event["kind"] == "experiment.changed"]
    assert [(one["field"], one["before"]) for one in changes] == [("early_stopping", UNDECIDED)]


def test_trials_are_paused_once_one_has_started_cheaply(service: Api) -> None:
    """The first starts are cold ones."""
    name = created(service)["name"]
    ran(given(service, name), saves_every=1, start=200)
    assert rule(service, name) == STOPPING
    why = "because a restart takes 200 s, more than half of a whole training (90 s)"
    assert why in experiment(service, name)["early_stopping"]["why"]
    ran(given(service, name), saves_every=1, start=100, value=0.6)
    assert rule(service, name) == STOPPING
    ran(given(service, name), saves_every=1, start=1, value=0.7)
    assert rule(service, name) == PROMOTING
    ran(given(service, name), saves_every=1, start=200, value=0.8)
    assert len(chosen(service, name)) == 3


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"limits": LIMITS | {"max_trials": 9}}, "a budget of 9 trials is too small"),
        (
            {"limits": LIMITS | {"max_trials": 18}, "confirm": {"top": 3, "seeds": 3}},
            "a budget of 9 trials is too small",
        ),
        ({"constraints": [{"metric": "size", "max": 1}]}, "early stopping ignores constraints"),
        (
            {"objectives": [{"metric": one, "direction": "minimize"} for one in ("loss", "size")]},
            "trials have 2 objectives",
        ),
    ],
    ids=["few trials", "few before confirmations", "constraints", "objectives"],
)
def test_some_searches_never_stop_a_trial(service: Api, changes: dict[str, Any], reason: str) -> None:
    shown = created(service, **changes)
    assert shown["spec"]["early_stopping"] == {"rule": "none"}
    assert reason in shown["early_stopping"]["why"]
    held = given(service, shown["name"])
    for step in range(STEPS):
        held.report(accuracy=step, loss=step, size=0, checkpoint=f"/{step}")
    held.finish()
    assert rule(service, shown["name"]) == {"rule": "none"}


@pytest.mark.parametrize(
    "own",
    [{"rule": "none"}, {"rule": "median"}, {"rule": "pbt", "interval": 3, "max_step": 9}],
    ids=lambda own: own["rule"],
)
def test_a_users_rule_stays(service: Api, own: dict[str, Any]) -> None:
    shown = created(service, early_stopping=own)
    assert shown["early_stopping"]["why"] is None
    assert shown["sampler"]["why"]
    ran(given(service, shown["name"]), steps=4, saves_every=1)
    assert experiment(service, shown["name"])["spec"]["early_stopping"] == shown["spec"]["early_stopping"]


def test_the_sampler_alone_may_be_left_to_the_service(service: Api) -> None:
    shown = created(service, search={"sampler": "auto"})
    assert shown["spec"]["early_stopping"] == {"rule": "none"}
    assert shown["early_stopping"] == {"name": "none", "options": {}, "why": None}
    assert [one["sampler"]["name"] for one in chosen(service, shown["name"])] == [shown["sampler"]["name"]]
    patched(service, shown["name"], limits={"max_trials": 9_000})
    assert [one["sampler"]["name"] for one in chosen(service, shown["name"])] == ["gp", "tpe"]


def test_the_rule_alone_may_be_left_to_the_service(service: Api) -> None:
    name = created(service, search={"sampler": "random"}, early_stopping={"rule": "auto"})["name"]
    ran(given(service, name))
    assert rule(service, name) == STOPPING


def test_other_words_are_refused(service: Api) -> None:
    refused = service.post("/v1/experiments", 422, json=a_spec(search="tpe"))
    assert "search: must be auto, or an object such as {sampler: tpe}" in refused["detail"]


def test_a_failed_trial_and_a_stopped_one_show_nothing(service: Api) -> None:
    name = created(service)["name"]
    failed = given(service, name)
    failed.report(accuracy=0.5)
    failed.fail()
    stopped = given(service, name)
    stopped.report(accuracy=0.5)
    service.post(f"/v1/trials/{stopped.trial}/stop")
    stopped.finish("stopped")
    assert rule(service, name) == {"rule": "auto"}
    assert len(chosen(service, name)) == 1


AGREE, CROSS = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("at_1", "at_3", "wanted"),
    [
        (AGREE, AGREE, STOPPING),
        ([0.1, 0.2, 0.4, 0.3], CROSS, STOPPING),
        (CROSS, AGREE, STOPPING),  # one rung is enough
        (CROSS, CROSS, {"rule": "none"}),
        (CROSS, [0.2] * 4, {"rule": "none"}),  # ties tell nothing
    ],
)
def test_no_trial_is_stopped_where_ranks_tell_nothing_of_those_of_the_ends(
    service: Api, at_1: list[float], at_3: list[float], wanted: dict[str, Any]
) -> None:
    """The first four trials run to their ends, as they run at the same time."""
    name = created(service, limits=LIMITS | {"parallelism": 4})["name"]
    held = [given(service, name) for _ in range(4)]
    for one, early, later, end in zip(held, at_1, at_3, AGREE, strict=True):
        assert rule(service, name) == {"rule": "auto"}
        for value in (early, early, *[later] * 6, end):
            one.report(accuracy=value)
        one.finish()
    assert rule(service, name) == wanted
    training = chosen(service, name)[-1]["training"]
    assert training["trial_count"] == 4
    assert training["concordances"].keys() == {"1", "3"}
    why = experiment(service, name)["early_stopping"]["why"]
    assert ("at steps 1 and 3 did not predict" in why) == (wanted["rule"] == "none")


def test_a_longer_training_does_not_make_whole_trials_few_again(service: Api) -> None:
    name = created(service, limits=LIMITS | {"parallelism": 4})["name"]
    held = [given(service, name) for _ in range(4)]
    for one, value in zip(held, AGREE, strict=True):
        ran(one, saves_every=1, value=value)
    assert rule(service, name) == STOPPING | {"promote": True}
    ran(given(service, name), saves_every=1, steps=4 * STEPS, value=0.9)
    longer = rule(service, name)
    assert (longer["promote"], "extra_count" in longer, longer["max_step"]) == (True, False, 4 * STEPS)


def test_only_reports_of_the_objective_count(service: Api) -> None:
    name = created(service)["name"]
    held = given(service, name)
    for step in range(STEPS):
        held.report(loss=step)
    held.report(accuracy=0.5)
    held.finish()
    assert rule(service, name) == {"rule": "none"}
    assert "made 1 report up to step 10" in experiment(service, name)["early_stopping"]["why"]


def test_a_trial_that_a_limit_in_time_ends_shows_a_whole_training(service: Api) -> None:
    """A holder enforces the limit itself, and says that it has stopped."""
    name = created(service, limits=LIMITS | {"max_trial_seconds": 600})["name"]
    held = given(service, name)
    for _ in range(STEPS):
        held.report(accuracy=0.5)
    assert held.finish("stopped")["status"] == "stopped"
    assert rule(service, name) == STOPPING


def test_confirmations_change_nothing(service: Api) -> None:
    name = created(service, limits=LIMITS | {"max_trials": 14}, confirm={"top": 2, "seeds": 2})["name"]
    ran(given(service, name), value=0.9)
    for _ in range(9):
        behind = given(service, name)
        behind.report(accuracy=0.1)
        behind.finish()
    confirmation = given(service, name)
    assert confirmation.shown()["confirms"] == 0
    ran(confirmation, steps=10 * STEPS)
    assert rule(service, name) == STOPPING
    assert len(chosen(service, name)) == 2


def test_the_choice_is_stored(settings: Settings) -> None:
    """Two services on one database, the second one started later: they choose together, and the same."""
    settings = replace(settings, lease_seconds=3600)
    with running(settings) as first:
        name = created(first)["name"]
        with running(settings) as second:
            ran(replace(given(first, name), api=second))
            assert rule(first, name) == rule(second, name) == STOPPING
            assert experiment(first, name) == experiment(second, name)
            ran(replace(given(second, name), api=first), value=0.9)
        held = given(first, name)
    with running(settings) as third:
        assert rule(third, name) == STOPPING
        ran(replace(held, api=third), steps=10 * STEPS, value=0.95)
        assert [one["training"] and one["training"]["number"] for one in chosen(third, name)] == [None, 0, 2]


@pytest.mark.parametrize("saves", [True, False], ids=["promoting", "stopping"])
def test_decisions_are_those_of_the_same_rule_from_a_user(service: Api, saves: bool) -> None:
    """Equal trials in equal order: one rule is chosen, the other one written by the user at that moment."""
    search = {"sampler": "random", "seed": 3}
    by_service = created(service, search=search, early_stopping={"rule": "auto"})["name"]
    by_user = created(service, search=search)["name"]
    chance = random.Random(7)  # noqa: S311
    values = [chance.random() for _ in range(15)]
    kinds = ("stop", "continue", "pause", "promote")
    for number, value in enumerate(values):
        for name in (by_service, by_user):
            held = asked(service, name)
            assert held
            if number == 0:
                ran(held, saves_every=1 if saves else None, value=value)
            elif saves:
                train(held, values[held.assignment["number"]], STEPS)
            else:
                stops_at = next((s for s in range(STEPS) if held.report(accuracy=value)["decision"] == "stop"), None)
                held.finish("completed" if stops_at is None else "stopped")
        if number == 0:
            patched(service, by_user, early_stopping=experiment(service, by_service)["spec"]["early_stopping"])
    assert decisions(service, by_service, *kinds) == decisions(service, by_user, *kinds)
    assert any(one["decision"] in {"stop", "pause"} for one in decisions(service, by_service, *kinds))
    assert [one["status"] for one in trials(service, by_service)] == [one["status"] for one in trials(service, by_user)]


def test_an_open_choice_is_not_replayed(service: Api) -> None:
    name = created(service)["name"]
    ran(given(service, name))
    refused = service.post(f"/v1/experiments/{name}/replay", 422, json={"early_stopping": {"rule": "auto"}})
    assert "auto cannot be replayed" in refused["detail"]
    own = experiment(service, name)["spec"]["early_stopping"]
    assert service.post(f"/v1/experiments/{name}/replay", json={"early_stopping": own})["step_count"] == STEPS


def test_no_rung_comes_before_the_first_report(service: Api) -> None:
    """The steps continue those of an earlier training, so that a 27th of the last one is long before the first."""
    name = created(service, step_metric="step")["name"]
    held = given(service, name)
    for step in range(100, 370, 10):
        held.report(step=step, accuracy=0.5)
    held.finish()
    assert rule(service, name) == {"rule": "hyperband", "max_step": 360, "min_step": 100, "weighted": True}
