"""An attempt gets the checkpoints of the trial's earlier attempts: they count with its own, and it removes them."""

from datetime import timedelta
from typing import Any

import pytest

from service.operations.checkpoints.obsolete_checkpoints import REPEATED_RUNS
from service.store.tables import TrialRow
from service.store.trials.param_generations import exploiters_beside
from service.store.trials.resume_point import resume_points
from tests.api.early_stopping.population import a_population
from tests.conftest import Api, Held
from tests.store.recorded_statements import recorded

pytestmark = pytest.mark.slow


def known(held: Held) -> list[str]:
    return [one["uri"] for one in held.api.get(f"/v1/trials/{held.trial}/checkpoints")["items"]]


def saving(service: Api, name: str, count: int) -> Held:
    """The next attempt, which saves this many checkpoints and is still running."""
    held = service.ask(name)
    assert held
    for number in range(count):
        held.report(accuracy=0.5, checkpoint=f"/{held.assignment['attempt']}/{number}")
    return held


def test_an_attempt_gets_the_checkpoints_of_earlier_attempts(service: Api) -> None:
    name = service.create(checkpoints={"keep": 2})["name"]
    first = saving(service, name, 3)
    assert (first.assignment["earlier_checkpoints"], first.assignment["earlier_runs"]) == ([], [])
    first.fail("lost")
    second = saving(service, name, 1)
    assert second.assignment["earlier_checkpoints"] == ["/1/1", "/1/2"]
    assert second.assignment["resume"]["uri"] == "/1/2"
    assert known(second) == ["/2/0", "/1/2"]
    second.fail("lost")
    third = saving(service, name, 2)
    assert third.assignment["earlier_checkpoints"] == ["/1/2", "/2/0"]
    assert third.assignment["earlier_runs"] == [first.assignment["run_name"], second.assignment["run_name"]]
    assert known(third) == ["/3/1", "/3/0"]


def test_checkpoints_that_an_attempt_has_replaced_are_not_kept(service: Api) -> None:
    """It has saved a step again, so the earlier attempt's checkpoints up to that step are replaced."""
    name = service.create(checkpoints={"keep": 2}, step_metric="epoch")["name"]
    first = service.ask(name)
    assert first
    for epoch in (4, 5):
        first.report(epoch=epoch, accuracy=0.5, checkpoint=f"/1/{epoch}")
    first.fail("lost")
    second = service.ask(name)
    assert second
    second.report(epoch=5, accuracy=0.5, checkpoint="/2/5")
    assert known(second) == ["/2/5"]


def test_runs_that_later_attempts_have_removed_are_not_listed_again(service: Api) -> None:
    name = service.create()["name"]
    runs = []
    for count in [1] * (REPEATED_RUNS + 4) + [0] * 3:
        held = saving(service, name, count)
        runs.append(held.assignment["run_name"])
        held.fail("preempted")
    last = service.ask(name)
    assert last
    assert last.assignment["earlier_runs"] == runs[3:]


def test_while_no_checkpoint_was_saved_all_runs_are_listed(service: Api) -> None:
    name = service.create()["name"]
    for count in range(REPEATED_RUNS + 4):
        held = saving(service, name, 0)
        assert len(held.assignment["earlier_runs"]) == count
        held.fail("preempted")


def test_a_repeated_claim_does_not_list_the_attempts_own_files(service: Api) -> None:
    name = service.create()["name"]
    first = saving(service, name, 1)
    first.fail("lost")
    second = service.ask(name, key="once")
    assert second
    second.report(accuracy=0.5, checkpoint="/2/0")
    again = service.ask(name, key="once")
    assert again
    assert again.assignment["earlier_checkpoints"] == []


def a_generation(
    service: Api, name: str, storage: str = "/s", outcome: str = "stopped", count: int = 2
) -> list[dict[str, Any]]:
    """Run all four trials to their first milestone, the first ones better; returns their assignments by number."""
    held = [one for _ in range(4) if (one := service.ask(name))]
    for one in held:
        for step in range(1, count + 1):
            uri = f"{storage}/{one.assignment['run_name']}/{step}"
            one.report(loss=1 + one.assignment["number"] - step / 100, checkpoint=uri)
        one.finish(outcome)
    return sorted((one.assignment for one in held), key=lambda one: int(one["number"]))


def test_a_checkpoint_that_another_trial_resumes_from_is_kept_until_that_trial_has_saved_its_own(service: Api) -> None:
    name = service.create(**a_population(limits={"max_trials": 4, "parallelism": 4}))["name"]
    first, second, third = (a_generation(service, name) for _ in range(3))
    donor, run = first[0], first[0]["run_name"]
    assert second[3]["resume"]["uri"] == f"/s/{run}/2"
    assert (second[0]["resume"]["uri"], second[0]["earlier_checkpoints"]) == (f"/s/{run}/2", [])
    assert second[0]["earlier_runs"] == []
    assert second[1]["earlier_checkpoints"] == [second[1]["resume"]["uri"]]
    assert third[3]["resume"]["uri"] == f"/s/{second[0]['run_name']}/2"
    assert third[0]["earlier_runs"] == [donor["run_name"]]


def test_donated_checkpoints_are_found_without_reading_all_generations(service: Api) -> None:
    name = service.create(**a_population(limits={"max_trials": 4, "parallelism": 4}))["name"]
    _, second, third = (a_generation(service, name) for _ in range(3))
    database = service.app.state.context.database
    with database.read() as session:
        trial = session.get_one(TrialRow, third[0]["trial"])
        with recorded(database.engine) as queries:
            others = exploiters_beside(session, trial)
            places = resume_points(session, [one["trial"] for one in third])
    assert others == [third[3]["trial"]]
    assert places[third[3]["trial"]].uri == f"/s/{third[3]['run_name']}/2"
    assert places[second[0]["trial"]].uri == f"/s/{third[0]['run_name']}/2"
    assert not [statement for statement, _ in queries if "generations.params" in statement]


def a_torch_population(service: Api) -> tuple[str, str]:
    """The run's name, and the directory of its checkpoints."""
    spec = a_population(
        limits={"max_trials": 4, "parallelism": 4}, trainer={"kind": "torch", "entrypoint": "train:train_fn"}
    )
    return service.create(**spec)["name"], service.app.state.context.settings.storage


def obsolete(service: Api) -> list[str]:
    found: list[str] = service.get("/v1/agents/any/attempts")["obsolete"]
    return found


def test_agents_get_the_obsolete_directories_of_ended_experiments(service: Api) -> None:
    name, storage = a_torch_population(service)
    first, second = (a_generation(service, name, storage) for _ in range(2))
    assert obsolete(service) == []
    last = a_generation(service, name, storage, "completed")
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    assert [last[3]["resume"]["uri"], last[0]["resume"]["uri"]] == [f"{storage}/{second[0]['run_name']}/2"] * 2
    assert obsolete(service) == [f"{storage}/{one[0]['run_name']}" for one in (first, second)]


def test_a_checkpoint_that_a_stopped_trial_would_resume_from_is_kept(service: Api) -> None:
    name, storage = a_torch_population(service)
    first, _ = (a_generation(service, name, storage) for _ in range(2))
    service.post(f"/v1/experiments/{name}/stop")
    assert service.get(f"/v1/experiments/{name}")["status"] == "stopped"
    assert obsolete(service) == [f"{storage}/{first[0]['run_name']}"]


def test_only_checkpoints_that_slots_have_saved_are_listed(service: Api) -> None:
    torch, storage = a_torch_population(service)
    external = service.create(**a_population(limits={"max_trials": 4, "parallelism": 4}))["name"]
    for name, place in ((torch, "/elsewhere"), (external, storage)):
        for outcome in ("stopped", "stopped", "completed"):
            a_generation(service, name, place, outcome)
        assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    assert obsolete(service) == []


def test_agents_remove_what_cut_off_attempts_have_left(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that was cut off cannot know which of its checkpoints count, and leaves them."""
    trainer = {"kind": "torch", "entrypoint": "train:train_fn"}
    name = service.create(trainer=trainer, limits={"max_trials": 1, "parallelism": 1})["name"]
    storage = service.app.state.context.settings.storage

    def claimed() -> Held:
        held = service.claim()
        assert held
        return held

    def obsolete() -> list[str]:
        found: list[str] = service.get("/v1/agents/here/attempts")["obsolete"]
        return found

    first = claimed()
    first.report(accuracy=0.1, checkpoint=f"{storage}/{first.assignment['run_name']}/checkpoint_1")
    first.fail("lost")
    second = claimed()
    second.fail("lost")
    third = claimed()
    third.report(accuracy=0.2)
    assert third.finish()["status"] == "completed"
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    assert obsolete() == [], "their slots may still write"
    monkeypatch.setattr("service.operations.checkpoints.obsolete_checkpoints.CUT_OFF_FOR", timedelta(0))
    assert obsolete() == [f"{storage}/{second.assignment['run_name']}"], "the first one's checkpoint is still known"
    [left] = service.get("/v1/agents/here/attempts")["partly_needed"]
    assert left == {"directory": f"{storage}/{first.assignment['run_name']}", "keep": ["checkpoint_1"]}
