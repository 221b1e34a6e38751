"""Population-based training over HTTP: members that end, experiments that end, and restarts of the service."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.operations.early_stopping.exploit import exploit
from service.settings import Settings
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade
from tests.api.early_stopping.population import (
    RULE,
    Trainer,
    a_population,
    decisions,
    trials,
    two,
)
from tests.conftest import Api, Held, running

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


@pytest.mark.parametrize("how", ["failed", "stopped by a user", "completed"])
def test_a_member_that_leaves_does_not_block_the_population(service: Api, how: str) -> None:
    name = service.create(**a_population(limits={"max_trials": 4, "parallelism": 4}))["name"]
    trainer = Trainer()
    held = [service.ask(name) for _ in range(4)]
    leaver = held[3]
    assert leaver
    for one in held[:3]:
        assert one
        trainer.train(one)
    assert service.ask(name) is None
    leaver.report(loss=0.0, checkpoint="/leaver-1")
    if how == "failed":
        leaver.fail()
    elif how == "completed":
        leaver.finish()
    else:
        service.post(f"/v1/trials/{leaver.trial}/stop")
        leaver.finish("stopped")
    trainer.train_all(service, name)
    assert [len(trainer.of(number)) for number in range(4)] == [3, 3, 3, 0]
    assert trials(service, name)[2]["generations"][1]["donor"] == 0
    assert "of 3;" in decisions(service, trials(service, name)[2])[1]["reason"]


def test_no_member_pauses_at_its_last_report_if_its_reports_do_not_fall_on_the_interval(service: Api) -> None:
    rule = {"rule": "pbt", "interval": 10, "max_step": 100}
    limits = {"max_trials": 2, "parallelism": 2}
    name = service.create(**a_population(early_stopping=rule, limits=limits, step_metric="epoch"))["name"]
    for epoch, decision in ((25, "stop"), (50, "stop"), (75, "stop"), (100, "continue")):
        members = two(service, name)
        for held in members:
            number = held.assignment["number"]
            answer = held.report(loss=number, epoch=epoch, checkpoint=f"/{held.trial}/{epoch}")
            assert answer["decision"] == decision
        for held in members:
            held.finish("stopped" if decision == "stop" else "completed")
    assert [trial["status"] for trial in trials(service, name)] == ["completed", "completed"]
    pauses = [one for one in decisions(service, trials(service, name)[1]) if one["decision"] == "pause"]
    assert [one["milestone"] for one in pauses] == [20, 50, 70]


def test_a_paused_member_that_a_user_stops_does_not_block_the_population(service: Api) -> None:
    name = service.create(**a_population(limits={"max_trials": 3, "parallelism": 1}))["name"]
    trainer = Trainer()
    trainer.train_all(service, name, parallelism=1, most=2)
    service.post(f"/v1/trials/{trials(service, name)[0]['id']}/stop")
    trainer.train_all(service, name, parallelism=1)
    assert [trial["status"] for trial in trials(service, name)] == ["stopped", "completed", "completed"]
    assert trials(service, name)[2]["generations"][1]["donor"] == 1


def waiting_ones(service: Api, **changes: Any) -> str:
    """Trials 0 and 1 wait for trial 2, which is running; the first is the best."""
    name: str = service.create(**a_population(limits={"max_trials": 3, "parallelism": 1}, **changes))["name"]
    Trainer().train_all(service, name, parallelism=1, most=2)
    return name


def out_of_time(service: Api, name: str, _running: Held) -> None:
    service.http.patch(f"/v1/experiments/{name}", json={"limits": {"max_seconds": 1e-3}}).raise_for_status()


def stopped_by_a_user(service: Api, name: str, _running: Held) -> None:
    service.post(f"/v1/experiments/{name}/stop")


def target_reached(_service: Api, _name: str, running: Held) -> None:
    running.report(loss=0.1)


@pytest.mark.parametrize("end", [out_of_time, stopped_by_a_user, target_reached])
def test_paused_members_may_be_the_best_when_the_experiment_ends_early(
    service: Api, end: Callable[[Api, str, Held], None]
) -> None:
    objectives = [{"metric": "loss", "direction": "minimize", "target": 0.5}]
    name = waiting_ones(service, objectives=objectives)
    running = service.ask(name)
    assert running
    running.report(loss=5.0)
    end(service, name, running)
    running.finish("stopped")
    first, second, third = trials(service, name)
    assert (first["status"], second["status"]) == ("stopped", "stopped")
    assert "; paused until the other trials reach it; the experiment ended before it was resumed: " in first["reason"]
    best = service.get(f"/v1/experiments/{name}")["best"]
    assert best["number"] == (2 if third["status"] == "completed" else 0)
    assert first["checkpoint"]["uri"] == "/checkpoints/0-1-2"


def heir_and_donor(service: Api, **changes: Any) -> tuple[str, Held]:
    """Trial 1 has taken over trial 0's checkpoint and params, and holds its next attempt."""
    spec = a_population(limits={"max_trials": 2, "parallelism": 2}, **changes)
    name = service.create(**spec)["name"]
    donor, heir = two(service, name)
    for step in (1, 2):
        donor.report(loss=0.5, size=5, checkpoint=f"/donor-{step}")
        heir.report(loss=0.9, size=20, checkpoint=f"/heir-{step}")
    donor.finish("stopped")
    heir.finish("stopped")
    assert trials(service, name)[1]["generations"][1]["donor"] == 0
    return name, two(service, name)[1]


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize("ends_as", ["completed", "stopped"])
def test_an_exploited_trial_that_ends_before_its_next_report_has_no_value(service: Api, ends_as: str) -> None:
    """Its earlier values belong to discarded params, those of its donor to other params than its own."""
    name, heir = heir_and_donor(service, constraints=[{"metric": "size", "max": 10}])
    assert (trials(service, name)[1]["value"], trials(service, name)[1]["feasible"]) == (0.5, True)
    heir.finish(ends_as)
    ended = trials(service, name)[1]
    assert (ended["status"], ended["value"], ended["feasible"]) == (ends_as, None, False)
    stored = [event for event in service.events(name) if event["kind"] == f"trial.{ends_as}"]
    assert stored[-1]["data"]["values"] == {"loss": None}


def test_params_that_no_trial_has_trained_with_are_neither_the_best_nor_observations(service: Api) -> None:
    name = service.create(**a_population(limits={"max_trials": 3, "parallelism": 3}))["name"]
    for number, loss in enumerate((0.9, 0.7, 0.5)):
        held = service.ask(name)
        assert held
        held.report(loss=loss, checkpoint=f"/{number}-1")
        held.report(loss=loss, checkpoint=f"/{number}-2")
        held.finish("stopped")
    assert trials(service, name)[0]["generations"][1]["donor"] == 2
    service.post(f"/v1/experiments/{name}/stop")
    best = service.get(f"/v1/experiments/{name}/best")
    assert (best["number"], best["checkpoint"]["uri"], best["params"]) == (
        2,
        "/2-2",
        trials(service, name)[2]["params"],
    )
    learner = service.create(**a_population(early_stopping={"rule": "none"}, search={"warm_start": [name]}))
    assert learner["warm_start"][0]["taken"] == 2


def test_an_exploited_trial_that_is_retried_after_its_end_has_its_own_value(service: Api) -> None:
    name, heir = heir_and_donor(service)
    service.post(f"/v1/trials/{heir.trial}/stop")
    heir.finish("stopped")
    service.post(f"/v1/trials/{heir.trial}/retry")
    again = service.ask(name)
    assert again
    assert again.assignment["resume"] == {"uri": "/donor-2", "step": 2}
    again.report(loss=0.4)
    again.finish()
    assert trials(service, name)[1]["value"] == 0.4


def history(service: Api, name: str) -> list[Any]:
    """The results of a search, without times and ids."""
    facts = ("params", "donor", "milestone", "resumed_step", "first_attempt")
    return [
        (
            trial["number"],
            trial["params"],
            trial["values"],
            [[one[fact] for fact in facts] for one in trial["generations"]],
            [(one["decision"], one["value"], one["reason"]) for one in decisions(service, trial)],
        )
        for trial in trials(service, name)
    ]


def test_a_restart_of_the_service_between_generations_changes_nothing(
    settings: Settings,
) -> None:
    spec = a_population(limits={"max_trials": 4, "parallelism": 4}, early_stopping=RULE | {"quantile": 0.5})
    trainer = Trainer()
    with running(settings) as service:
        service.create(**spec | {"name": "undisturbed"})
        trainer.train_all(service, "undisturbed", parallelism=4)
        undisturbed = history(service, "undisturbed")
        service.create(**spec | {"name": "disturbed"})
    ended = False
    while not ended:
        with running(settings) as service:
            ended = trainer.train_all(service, "disturbed", parallelism=4, most=1) == 0
            disturbed = history(service, "disturbed")
    assert disturbed == undisturbed
    assert [len(one[3]) for one in disturbed] == [0, 0, 3, 3]


@pytest.fixture
def copied(tmp_path: Path) -> tuple[Settings, Settings]:
    """The settings of two services with a database each; the test copies the first database to the second."""
    first, second = (
        Settings(data_dir=tmp_path / one, database_url=f"sqlite:///{tmp_path / one}.db", storage=str(tmp_path / "all"))
        for one in ("first", "second")
    )
    for one in (first, second):
        one.prepare_directories()
        database = Database(one.database_url)
        upgrade(database)
        database.close()
    return first, second


def test_two_services_on_copies_of_one_history_compute_the_same_generation(
    copied: tuple[Settings, Settings], tmp_path: Path
) -> None:
    first, second = copied
    trainer = Trainer()
    with running(first) as service:
        service.create(**a_population(name="twin"))
        for _ in range(3):
            held = service.ask("twin")
            assert held
            trainer.train(held)
        last = service.ask("twin")
        assert last
        for step in (1, 2):
            last.report(loss=9.0, checkpoint=f"/last-{step}")
    shutil.copy(tmp_path / "first.db", tmp_path / "second.db")
    found = []
    for one in (first, second):
        with running(one) as service:
            Held(service, last.assignment, last.sequence).finish("stopped")
            found.append(history(service, "twin"))
    assert found[0] == found[1]
    assert found[0][3][3][1][1:3] == [0, 2]


def test_a_generation_is_stored_as_a_whole_or_not_at_all(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    name = service.create(**a_population(limits={"max_trials": 8, "parallelism": 8}))["name"]
    held = [service.ask(name) for _ in range(8)]
    for one in held[:7]:
        assert one
        Trainer().train(one)
    last = held[7]
    assert last
    for _ in range(2):
        last.report(loss=9.0, checkpoint="/last")

    def fail(*_arguments: Any) -> None:
        raise RuntimeError("in the middle of a generation")

    monkeypatch.setattr("service.operations.early_stopping.paused_trials.exploit", fail)
    closing = last.headers | {"Connection": "close"}  # as the service does after an error of its own
    answer = service.http.post(f"/v1/trials/{last.trial}/finish", headers=closing, json={"outcome": "stopped"})
    assert answer.status_code == 500
    counts = service.get(f"/v1/experiments/{name}")["counts"]
    assert (counts["paused"], counts["running"], counts["queued"]) == (7, 1, 0)
    monkeypatch.setattr("service.operations.early_stopping.paused_trials.exploit", exploit)
    last.finish("stopped")
    assert service.get(f"/v1/experiments/{name}")["counts"]["queued"] == 8


def test_a_member_that_ends_although_asked_to_pause_has_completed(service: Api) -> None:
    """The function has returned, although its last report was answered with a pause."""
    name = service.create(**a_population(early_stopping=RULE | {"max_step": 100}))["name"]
    first, second = two(service, name)
    first.report(loss=0.5)
    assert first.report(loss=0.4)["decision"] == "stop"
    assert first.finish("completed")["status"] == "completed"
    second.report(loss=0.5)
    second.report(loss=0.3)
    assert second.finish("stopped")["status"] == "paused"


def test_paused_trials_continue_when_the_rule_is_removed(service: Api) -> None:
    name = service.create(**a_population(limits={"max_trials": 2, "parallelism": 2}))["name"]
    first, second = two(service, name)
    for step in (1, 2):
        first.report(loss=0.4, checkpoint=f"/first-{step}")
    assert first.finish("stopped")["status"] == "paused"
    service.http.patch(f"/v1/experiments/{name}", json={"early_stopping": {"rule": "none"}}).raise_for_status()
    again = service.ask(name)
    assert again
    assert (again.trial, again.assignment["resume"]) == (first.trial, {"uri": "/first-2", "step": 2})
    assert again.report(loss=0.3)["decision"] == "continue"
    assert second.report(loss=0.3)["decision"] == "continue"


def test_a_member_that_has_only_its_donors_checkpoint_resumes_from_that_one(service: Api) -> None:
    name = service.create(**a_population())["name"]
    trainer = Trainer(
        saves=lambda _number, step: step <= 2, loss=lambda number, step: [9, 1, 2, 3][number] - step / 100
    )
    trainer.train_all(service, name)
    paused = [one["data"] for one in service.events(name) if one["kind"] == "trial.paused"]
    assert {one["step"] for one in paused} == {2, 4}
    assert not any("has saved no checkpoint" in one["reason"] for one in paused)
