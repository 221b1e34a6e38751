"""Population-based training over HTTP: trials pause at milestones, and the worst resume from the best."""

from pathlib import Path
from typing import Any

import pytest

from service.operations.early_stopping.recorded_milestones import MilestonesMissing, catch_up
from service.runtime.context import Context
from tests.api.early_stopping.population import (
    RULE,
    SPACE,
    Trainer,
    a_population,
    decisions,
    loss_of,
    trials,
    two,
    uri_in_run,
)
from tests.conftest import Api
from tests.history_reads import counted_reads

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


def test_after_each_generation_the_worst_members_resume_from_the_best(service: Api) -> None:
    name = service.create(**a_population())["name"]
    trainer = Trainer()
    trainer.train_all(service, name)
    assert [run.number for run in trainer.runs[:4]] == [0, 1, 2, 3]  # all reach the milestone first
    assert {run.number: run.reported for run in trainer.runs[:4]} == {number: [1, 2] for number in range(4)}
    assert [len(trainer.of(number)) for number in range(4)] == [3, 3, 3, 3]
    best, worst = trainer.of(0), trainer.of(3)
    assert [run.params for run in best] == [best[0].params] * 3
    assert worst[1].resume == {"uri": "/checkpoints/0-1-2", "step": 2}
    assert worst[2].resume == {"uri": "/checkpoints/0-2-4", "step": 4}
    assert worst[0].params != worst[1].params != worst[2].params
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"], shown["counts"]["completed"]) == ("completed", "max_trials", 4)
    assert shown["best"]["number"] == 0


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_reports_of_paused_members_do_not_change_proposals(service: Api, sampler: str) -> None:
    """The first configurations of a population follow from the seed alone."""
    search = {"sampler": sampler, "seed": 3, "options": {"n_startup_trials": 1}}
    begun = []
    for losses in ([1, 2, 3, 4], [4, 3, 2, 1]):
        spec = a_population(space={"lr": SPACE["lr"]}, search=search, limits={"max_trials": 4, "parallelism": 1})
        name, trainer = service.create(**spec)["name"], Trainer(loss=lambda number, _step, own=losses: own[number])  # type: ignore[misc]
        trainer.train_all(service, name, parallelism=1, most=4)
        begun.append([run.params for run in trainer.runs])
    assert begun[0] == begun[1]
    assert len(begun[0]) == 4


def test_auto_spreads_a_population_evenly_unless_it_has_something_to_learn_from(service: Api) -> None:
    earlier = service.create(**a_population())["name"]
    Trainer().train_all(service, earlier)
    alone = service.create(**a_population(search={"sampler": "auto"}))["sampler"]
    assert alone["name"] == "qmc"
    assert "before any of them ends" in alone["why"]
    informed = service.create(**a_population(search={"sampler": "auto", "warm_start": [earlier]}))
    assert informed["sampler"]["name"] == "tpe"
    assert informed["warm_start"][0]["taken"] == 4


def test_every_generation_is_shown_with_its_donor_params_and_reason(service: Api) -> None:
    name = service.create(**a_population())["name"]
    trainer = Trainer()
    trainer.train_all(service, name)
    *others, worst = trials(service, name)
    assert all(other["generations"] == [] for other in others)
    first, second, third = worst["generations"]
    assert [one["params"] for one in (first, second, third)] == [run.params for run in trainer.of(3)]
    assert (first["number"], first["donor"], first["resumed_from"]) == (0, None, None)
    assert (second["donor"], second["milestone"], second["resumed_step"]) == (0, 2, 2)
    assert (third["donor"], third["milestone"], third["resumed_from"]) == (0, 4, "/checkpoints/0-2-4")
    assert [(one["generation"], one["params"]) for one in worst["attempts"]] == [
        (number, run.params) for number, run in enumerate(trainer.of(3))
    ]
    assert worst["params"] == third["params"]
    assert worst["checkpoint"]["uri"] == "/checkpoints/3-3-6"
    said = decisions(service, worst)
    assert [one["decision"] for one in said] == ["pause", "exploit", "pause", "exploit"]
    exploited = said[1]
    assert (exploited["rule"], exploited["milestone"], exploited["metric"]) == ("pbt", 2, "loss")
    assert (exploited["value"], exploited["cutoff"]) == (loss_of(3, 2), loss_of(2, 2))
    assert (exploited["compared_count"], exploited["compared_with"]) == (3, [0, 1, 2])
    assert exploited["reason"].startswith(
        "loss 3.98 at step 2 is among the worst 1 of 4; resumes from trial 0's checkpoint at step 2 (loss 0.98) with "
    )
    assert "(was " in exploited["reason"]
    [stored, _] = [event for event in service.events(name) if event["kind"] == "trial.exploited"]
    assert (stored["trial"], stored["data"]["donor"], stored["data"]["generation"]) == (worst["id"], 0, 1)
    assert (stored["data"]["params_before"], stored["data"]["params"]) == (first["params"], second["params"])
    assert stored["data"]["reason"] == exploited["reason"]
    best = decisions(service, others[0])
    assert [one["decision"] for one in best] == ["pause", "continue", "pause", "continue"]
    assert best[1]["reason"] == "loss 0.98 at step 2 is among the best 1 of 4; resumes as it is"


@pytest.mark.databases("sqlite", "postgresql")
def test_a_late_repeat_of_an_enqueue_call_gets_its_trials_although_their_params_were_replaced(service: Api) -> None:
    name = service.create(**a_population())["name"]
    path, headers = f"/v1/experiments/{name}/trials", {"Idempotency-Key": "once"}
    body = [{"params": {"lr": lr, "optimizer": "adam"}} for lr in (0.1, 0.2, 0.3, 0.4)]
    first = service.post(path, 201, json=body, headers=headers)["items"]
    Trainer().train_all(service, name)
    present = trials(service, name)
    assert present[3]["params"] != body[3]["params"]
    again = service.post(path, 201, json=body, headers=headers)["items"]
    assert [trial["id"] for trial in again] == [trial["id"] for trial in first]
    with_present_params = [{"params": trial["params"]} for trial in present]
    service.post(path, 409, json=with_present_params, headers=headers)


def a_pair_of_which_the_worse_ran_on(service: Api) -> str:
    """An experiment whose two trials have paused at step 2. The worse one reported up to step 4, and loses that."""
    name: str = service.create(**a_population(limits={"max_trials": 2, "parallelism": 2}))["name"]
    first, second = two(service, name)
    for step in (1, 2):
        first.report(loss=0.1, checkpoint=f"/first-{step}")
        second.report(loss=0.9, checkpoint=f"/second-{step}")
    second.report(loss=0.8, checkpoint="/second-3")
    second.report(loss=0.7, checkpoint="/second-4")
    second.finish("stopped")
    first.finish("stopped")
    return name


def test_the_curve_of_an_exploited_trial_continues_in_its_new_generation(service: Api) -> None:
    """What a trial reported beyond its milestone, before it left, was made with weights that are discarded."""
    name = a_pair_of_which_the_worse_ran_on(service)
    _, second = two(service, name)
    assert second.assignment["resume"] == {"uri": "/first-2", "step": 2}
    assert second.shown()["checkpoint"] is None  # its own checkpoint belongs to other params
    assert second.report(loss=0.05)["decision"] == "continue"
    assert second.report(loss=0.04)["decision"] == "stop"
    curve = service.get(f"/v1/trials/{second.trial}/reports")["items"]
    assert [(point["step"], point["metrics"]["loss"]) for point in curve] == [(1, 0.9), (2, 0.9), (3, 0.05), (4, 0.04)]
    assert decisions(service, second.shown())[-1]["value"] == 0.04


@pytest.mark.databases("sqlite", "postgresql")
def test_a_donor_is_taken_at_the_milestone_whatever_it_reported_later(service: Api) -> None:
    """Both reported beyond the milestone while the service was slow."""
    name = service.create(**a_population(limits={"max_trials": 2, "parallelism": 2}))["name"]
    first, second = two(service, name)
    for step in (1, 2, 3, 4):
        first.report(loss=0.1, checkpoint=f"/first-{step}")
        second.report(loss=0.9, checkpoint=f"/second-{step}")
    first.finish("stopped")
    assert second.finish("stopped")["status"] == "queued"
    donor, heir = two(service, name)
    assert donor.assignment["resume"] == heir.assignment["resume"] == {"uri": "/first-2", "step": 2}
    assert [heir.report(loss=loss)["decision"] for loss in (0.2, 0.05)] == ["continue", "stop"]
    pauses = [one for one in decisions(service, heir.shown()) if one["decision"] == "pause"]
    assert [(one["milestone"], one["step"], one["value"]) for one in pauses] == [(2, 2, 0.9), (4, 4, 0.05)]


def test_reports_that_an_exploit_discarded_do_not_count_under_a_later_rule(service: Api) -> None:
    name = a_pair_of_which_the_worse_ran_on(service)
    asked = {"early_stopping": {"rule": "threshold", "upper": 100}}
    assert service.post(f"/v1/experiments/{name}/replay", json=asked)["step_count"] == 4
    service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": {"quantile": 0.5}}).raise_for_status()
    _, heir = two(service, name)
    assert heir.assignment["resume"] == {"uri": "/first-2", "step": 2}
    assert [heir.report(loss=0.05)["decision"] for _ in (3, 4)] == ["continue", "stop"]


def test_an_exploit_while_the_history_is_read_has_it_read_anew_without_the_lock(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, reads = (
        service.create(**a_population(limits={"max_trials": 2, "parallelism": 2}))["name"],
        counted_reads(monkeypatch),
    )
    first, second = two(service, name)
    for step in (1, 2):
        first.report(loss=0.1, checkpoint=f"/first-{step}")
        second.report(loss=0.9, checkpoint=f"/second-{step}")
    second.finish("stopped")
    counts: list[int] = []

    def read_slowly(context: Context, missing: MilestonesMissing) -> None:
        catch_up(context, missing)
        if not counts:
            first.finish("stopped")
            assert "trial.exploited" in [event["kind"] for event in service.events(name)]
        counts.append(reads.unlocked)

    monkeypatch.setattr("service.operations.early_stopping.recorded_milestones.MAX_LOCKED_EVENTS", 5)
    monkeypatch.setattr("service.operations.early_stopping.recorded_milestones.catch_up", read_slowly)
    service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": {"quantile": 0.5}}).raise_for_status()
    once, twice = counts
    assert twice > 2 * once
    assert reads.locked == 0
    _, heir = two(service, name)
    assert heir.assignment["resume"] == {"uri": "/first-2", "step": 2}


def test_a_lost_attempt_is_retried_in_its_generation(service: Api) -> None:
    """It resumes from the donor's checkpoint until it has one of its own, with the same params."""
    name = service.create(**a_population())["name"]
    trainer = Trainer()
    trainer.train_all(service, name, most=2)
    held = {one.assignment["number"]: one for one in iter(lambda: service.ask(name), None)}
    for number in (0, 1):
        trainer.train(held[number])
    trainer.train(service.ask(name))  # type: ignore[arg-type]
    exploited = service.ask(name)
    assert exploited
    params = exploited.assignment["params"]
    exploited.fail("lost", "the node went away")
    again = service.ask(name)
    assert again
    assert (again.assignment["number"], again.assignment["attempt"]) == (3, 3)
    assert (again.assignment["params"], again.assignment["resume"]) == (
        params,
        {"uri": "/checkpoints/0-1-2", "step": 2},
    )
    again.report(loss=5.0, checkpoint="/own-3")
    again.fail("lost", "the node went away")
    own = service.ask(name)
    assert own
    assert (own.assignment["params"], own.assignment["resume"]) == (params, {"uri": "/own-3", "step": 3})
    shown = own.shown()
    assert [one["generation"] for one in shown["attempts"]] == [0, 1, 1, 1]
    assert len(shown["generations"]) == 2


def test_a_donors_checkpoint_is_kept_until_no_trial_resumes_from_it(service: Api) -> None:
    """Otherwise the donor's later attempts would remove it before the last member resumes from it."""
    name = service.create(**a_population(limits={"max_trials": 4, "parallelism": 1}))["name"]
    trainer = Trainer(loss=lambda number, step: number if step < 4 else -number, uri=uri_in_run)
    trainer.train_all(service, name, parallelism=1, most=4)
    donor, *_ = [trainer.train_next(service, name) for _ in range(3)]
    assert (donor["number"], donor["earlier_checkpoints"], donor["earlier_runs"]) == (0, [], [])
    heir = trainer.train_next(service, name)
    assert heir["resume"] == donor["resume"]
    [own] = heir["earlier_runs"]
    assert [Path(uri).parent for uri in heir["earlier_checkpoints"]] == [Path("/checkpoints", own)]
    # By now the donor is the worst and resumes from its heir, so its first checkpoint is no longer needed.
    again = trainer.train_next(service, name)
    assert (again["number"], again["attempt"]) == (0, 3)
    assert again["resume"]["uri"] == uri_in_run(heir, 4)
    assert len(again["earlier_runs"]) == 2


@pytest.mark.databases("sqlite", "postgresql")
def test_a_donor_without_a_checkpoint_of_its_own_passes_on_the_one_it_resumed_from(service: Api) -> None:
    """Its checkpoint is kept for a trial that resumes from it indirectly."""
    name = service.create(**a_population(limits={"max_trials": 3, "parallelism": 1}))["name"]
    losses = {2: [9, 1, 5], 4: [1, 5, 9], 6: [1, 5, 9]}
    trainer = Trainer(
        loss=lambda number, step: losses[step + step % 2][number],
        saves=lambda number, step: (number, step) not in {(0, 3), (0, 4)},
        uri=uri_in_run,
    )
    first = [trainer.train_next(service, name) for _ in range(3)]
    second = [trainer.train_next(service, name) for _ in range(3)]
    inherited = {"uri": uri_in_run(first[1], 2), "step": 2}
    assert second[0]["resume"] == inherited
    third = [trainer.train_next(service, name) for _ in range(3)]
    assert first[1]["run_name"] not in third[1]["earlier_runs"]
    assert third[2]["resume"] == inherited


def test_without_a_checkpoint_no_trial_is_exploited_and_the_reason_says_so(service: Api) -> None:
    name = service.create(**a_population())["name"]
    trainer = Trainer(saves=lambda number, _step: number > 0)
    trainer.train_all(service, name)
    worst = trials(service, name)[3]
    assert worst["generations"] == []
    [said, _] = [one for one in decisions(service, worst) if one["decision"] == "continue"]
    assert said["reason"].endswith("but the best of them saved no checkpoint (trial 0); resumes as it is")
    assert trainer.of(0)[1].resume is None  # starts from scratch and repeats known steps
    assert trainer.of(0)[1].reported == [1, 2, 3, 4]
    assert trials(service, name)[0]["status"] == "completed"


def test_params_meet_their_conditions_after_every_exploit(service: Api) -> None:
    forbid = [{"optimizer": "sgd", "lr": {"min": 0.3}}]
    rule = {"rule": "pbt", "interval": 1, "max_step": 6, "quantile": 0.5, "resample_probability": 0.5}
    limits = {"max_trials": 6, "parallelism": 3}
    name = service.create(**a_population(early_stopping=rule, limits=limits, forbid=forbid))["name"]
    trainer = Trainer(loss=lambda number, step: (number * 7 + step * 5) % 11)
    trainer.train_all(service, name, parallelism=3)
    seen = [run.params for run in trainer.runs]
    assert len({str(params) for params in seen}) > 12
    for params in seen:
        assert ("momentum" in params) == (params["optimizer"] == "sgd")
        assert not (params["optimizer"] == "sgd" and params["lr"] >= 0.3)


def test_an_exploited_trial_takes_what_is_not_to_be_perturbed_from_the_other(service: Api) -> None:
    rule = {"rule": "pbt", "interval": 1, "max_step": 6, "quantile": 0.5, "perturb": ["lr"]}
    name = service.create(**a_population(early_stopping=rule, limits={"max_trials": 6, "parallelism": 3}))["name"]
    trainer = Trainer(loss=lambda number, step: (number * 7 + step * 5) % 11)
    trainer.train_all(service, name, parallelism=3)
    kept = [str({**run.params, "lr": None}) for run in trainer.runs]
    assert set(kept) == set(kept[:6])
    assert len({run.params["lr"] for run in trainer.runs}) > 12


def test_the_api_shows_the_newest_params_of_an_exploited_trial(service: Api) -> None:
    rule, limits = {"rule": "pbt", "interval": 1, "max_step": 2}, {"max_trials": 10, "parallelism": 10}
    name = service.create(**a_population(early_stopping=rule, limits=limits))["name"]
    Trainer(steps=2, loss=lambda number, step: (number * 5 + step * 3) % 13).train_all(service, name, parallelism=10)
    whole = trials(service, name)
    exploited = next(trial for trial in whole if trial["generations"])
    table = service.http.get(f"/v1/experiments/{name}/trials", params={"format": "csv"}).text.splitlines()
    row = dict(zip(table[0].split(","), table[1 + exploited["number"]].split(","), strict=True))
    assert float(row["lr"]) == exploited["params"]["lr"] == exploited["generations"][-1]["params"]["lr"]
    best = service.get(f"/v1/experiments/{name}/best")
    assert best["params"] == (best["generations"] or [best])[-1]["params"]
    importance = service.get(f"/v1/experiments/{name}/importance")
    assert importance["used_count"] == 10


def test_several_objectives_need_the_metric_to_be_named(service: Api) -> None:
    objectives = [{"metric": "loss", "direction": "minimize"}, {"metric": "size", "direction": "minimize"}]
    response = service.http.post("/v1/experiments", json=a_population(objectives=objectives))
    assert [error["path"] for error in response.json()["errors"]] == ["early_stopping.metric"]
    service.create(**a_population(objectives=objectives, early_stopping={**RULE, "metric": "size"}))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"early_stopping": {"rule": "pbt", "max_step": 6}}, "early_stopping.interval"),
        ({"early_stopping": {"rule": "pbt", "interval": 2}}, "early_stopping.max_step"),
        ({"early_stopping": {**RULE, "quantile": 0.7}}, "early_stopping.quantile"),
        ({"early_stopping": {**RULE, "max_step": 2}}, "early_stopping"),
        ({"early_stopping": {**RULE, "perturb": ["lr", "rate"]}}, "early_stopping.perturb.1"),
        ({"early_stopping": {**RULE, "perturb": []}}, "early_stopping.perturb"),
        ({"limits": {"max_trials": 1}}, "limits.max_trials"),
        (
            {"early_stopping": {"rule": "patient", "patience": 1, "wrapped_rule": RULE}},
            "early_stopping.wrapped_rule.rule",
        ),
    ],
)
def test_a_mistake_is_refused_at_submit(service: Api, changes: dict[str, Any], path: str) -> None:
    response = service.http.post("/v1/experiments", json=a_population(**changes))
    assert response.status_code == 422
    assert [error["path"] for error in response.json()["errors"]] == [path]


def test_pbt_without_max_step_is_refused_with_an_explanation(service: Api) -> None:
    """Otherwise one of the worst trials would pause at its last step, and resume from its donor only to end."""
    problem = service.post("/v1/experiments", 422, json=a_population(early_stopping={"rule": "pbt"}))
    assert {one["path"]: one["message"] for one in problem["errors"]} == {
        "early_stopping.interval": "is required: the number of steps of a generation",
        "early_stopping.max_step": "is required: the last step of a complete training; for a training without an end, "
        "a step that it never reaches",
    }


def test_pbt_cannot_be_replayed(service: Api) -> None:
    name = service.create(**a_population())["name"]
    answer = service.post(f"/v1/experiments/{name}/replay", 422, json={"early_stopping": RULE})
    assert "pbt cannot be replayed: it changes the params of trials" in answer["detail"]


def test_a_live_experiment_may_change_to_pbt(service: Api) -> None:
    name = service.create(**a_population(early_stopping={"rule": "none"}))["name"]
    first, second = two(service, name)
    first.report(loss=0.5, checkpoint="/first-1")
    service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": RULE}).raise_for_status()
    assert first.report(loss=0.4, checkpoint="/first-2")["decision"] == "stop"
    assert first.finish("stopped")["status"] == "paused"
    assert second.report(loss=0.3)["decision"] == "continue"


@pytest.mark.databases("sqlite", "postgresql")
def test_a_population_is_no_larger_than_its_space(service: Api) -> None:
    space = {"units": {"type": "categorical", "choices": [16, 32, 64]}}
    spec = a_population(space=space, search={"sampler": "brute_force"}, limits={"max_trials": 9, "parallelism": 2})
    name = service.create(**spec)["name"]
    trainer = Trainer()
    for _ in range(8):
        trainer.train_all(service, name)
    assert [len(trainer.of(number)) for number in range(4)] == [3, 3, 3, 0]
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "space_exhausted"
