"""What happens between the plan of retention and the removal: nothing that has come to be needed is removed."""

from collections.abc import Callable

import pytest
from sqlalchemy.orm import Session

from service.operations.checkpoints import retention_removal
from service.operations.checkpoints.retention_plan import Plan, RetentionFacts, plan_of
from service.store.events import append_event
from service.store.experiments import lock_experiment
from service.store.tables import AttemptRow, CheckpointRow, GenerationRow, TrialRow
from tests.api.trials.test_retention import an_experiment, deletions, folder, retain, save, settled, start, trained
from tests.conftest import Api, Held

pytestmark = pytest.mark.slow

__all__ = ["settled"]

Meanwhile = Callable[[Callable[[], object]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Has something happen after retention has made its next plan, before it removes anything."""

    def happens(act: Callable[[], object]) -> None:
        acts = [act]

        def planned(facts: RetentionFacts) -> Plan:
            plan = plan_of(facts)
            if acts:
                acts.pop()()
            return plan

        monkeypatch.setattr(retention_removal, "plan_of", planned)

    return happens


def is_present(held: Held) -> bool:
    return held.shown()["checkpoint"] is not None


def test_a_checkpoint_that_is_pinned_meanwhile_is_kept(service: Api, meanwhile: Meanwhile) -> None:
    an_experiment(service)
    pinned, worse, _ = (trained(service, accuracy) for accuracy in (0.1, 0.2, 0.9))
    meanwhile(lambda: service.call("PUT", f"/v1/trials/{pinned.trial}/checkpoints/1/pin", 200))
    retain(service)
    assert set(deletions(service)) == {folder(worse)}
    assert is_present(pinned)


def test_a_run_of_which_a_checkpoint_is_pinned_meanwhile_keeps_its_folder(service: Api, meanwhile: Meanwhile) -> None:
    an_experiment(service, checkpoints={"keep": 2})
    trained(service, 0.9)
    held = start(service)
    first, second = save(held, 0.1), save(held, 0.1)
    held.finish()
    meanwhile(lambda: service.call("PUT", f"/v1/trials/{held.trial}/checkpoints/2/pin", 200))
    retain(service)
    assert set(deletions(service)) == {first}
    assert held.shown()["checkpoint"]["uri"] == second


def test_checkpoints_that_a_changed_rule_keeps_meanwhile_are_kept(service: Api, meanwhile: Meanwhile) -> None:
    name = an_experiment(service)
    worst, _, _ = (trained(service, accuracy) for accuracy in (0.1, 0.2, 0.9))
    rule = {"checkpoints": {"keep_best_trials": 2}}
    meanwhile(lambda: service.http.patch(f"/v1/experiments/{name}", json=rule).raise_for_status())
    retain(service)
    assert deletions(service) == {}
    retain(service)
    assert set(deletions(service)) == {folder(worst)}


def test_the_checkpoint_of_a_trial_that_is_queued_again_meanwhile_is_kept(service: Api, meanwhile: Meanwhile) -> None:
    name = an_experiment(service, checkpoints={"keep_last": False})
    trained(service, 0.9)
    stopped = trained(service, 0.5, "stopped")

    def set_limit(max_trials: int) -> None:
        limits = {"limits": {"max_trials": max_trials}}
        service.http.patch(f"/v1/experiments/{name}", json=limits).raise_for_status()

    def retry() -> None:
        set_limit(9)
        service.post(f"/v1/trials/{stopped.trial}/retry")

    set_limit(2)
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    meanwhile(retry)
    for _ in range(2):
        retain(service)
    assert is_present(stopped)
    assert deletions(service) == {}


def test_a_trial_comes_to_the_front_when_one_that_beat_it_is_queued_again_meanwhile(
    service: Api, meanwhile: Meanwhile
) -> None:
    objectives = [{"metric": "accuracy", "direction": "maximize"}, {"metric": "ms", "direction": "minimize"}]
    an_experiment(service, objectives=objectives, checkpoints={"keep": 2})
    held = [start(service) for _ in range(3)]
    for one, accuracy, milliseconds in zip(held, (0.9, 0.5, 0.4), (90, 10, 20), strict=True):
        for step in range(2):
            one.report(accuracy=accuracy, ms=milliseconds, checkpoint=f"{folder(one)}/{step}")
        one.finish("completed" if accuracy == 0.9 else "stopped")
    meanwhile(lambda: service.post(f"/v1/trials/{held[1].trial}/retry"))
    retain(service)
    assert deletions(service) == {}


def test_a_folder_with_a_checkpoint_that_only_a_resuming_trial_knows_is_kept(
    service: Api, meanwhile: Meanwhile
) -> None:
    """Its own trial has replaced it."""
    an_experiment(service)
    donor, _ = trained(service, 0.1), trained(service, 0.9)
    other, uri = start(service), donor.shown()["checkpoint"]["uri"]

    def resume() -> None:
        with service.app.state.context.database.write() as session:
            exploit(session, other, f"{folder(donor)}/replaced")

    meanwhile(resume)
    retain(service)
    assert set(deletions(service)) == {uri}


def test_a_directory_with_two_checkpoints_is_deleted_with_the_last_of_them(service: Api) -> None:
    """Code that saves to the same directory at each report."""
    an_experiment(service, checkpoints={"keep": 2})
    trained(service, 0.9)
    held = start(service)
    for _ in range(2):
        held.report(accuracy=0.1, checkpoint=f"{folder(held)}/newest")
    held.finish()
    pin = f"/v1/trials/{held.trial}/checkpoints/2/pin"
    service.call("PUT", pin, 200)
    retain(service)
    assert deletions(service) == {}
    service.call("DELETE", pin, 200)
    assert set(deletions(service)) == {folder(held)}


@pytest.mark.parametrize("reason", ["exploit", "attempt"])
def test_a_checkpoint_that_another_trial_resumes_from_meanwhile_is_kept(
    service: Api, meanwhile: Meanwhile, reason: str
) -> None:
    an_experiment(service)
    donor, worse, _ = (trained(service, accuracy) for accuracy in (0.1, 0.2, 0.9))
    other, database = start(service), service.app.state.context.database
    uri = donor.shown()["checkpoint"]["uri"]

    def resume() -> None:
        with database.write() as session:
            if reason == "attempt":
                session.query(AttemptRow).filter_by(trial_id=other.trial).one().resume_uri = uri
            else:
                exploit(session, other, uri)

    meanwhile(resume)
    for _ in range(2):
        retain(service)
        assert set(deletions(service)) == {folder(worse)}
        assert is_present(donor)


def exploit(session: Session, held: Held, uri: str) -> None:
    """As population-based training does, whose own rule would choose another donor."""
    experiment = lock_experiment(session, held.assignment["experiment_id"])
    trial = session.get_one(TrialRow, held.trial)
    assert experiment
    now = trial.created_at
    trial.changed_at_event = append_event(session, experiment, "trial.exploited", {}, at=now, trial_id=trial.id)
    facts = {"first_attempt": 2, "began_at_event": trial.changed_at_event, "at": now}
    session.add(GenerationRow(trial_id=trial.id, number=1, params={}, donor=0, resume_uri=uri, resume_step=1, **facts))


def test_a_checkpoint_that_another_service_removes_meanwhile_is_removed_once(
    service: Api, meanwhile: Meanwhile
) -> None:
    name = an_experiment(service)
    worse, _ = trained(service, 0.1), trained(service, 0.9)
    meanwhile(lambda: retain(service))
    retain(service)
    assert set(deletions(service)) == {folder(worse)}
    assert [event["kind"] for event in service.events(name)].count("checkpoint.removed") == 1


def test_a_folder_of_which_another_service_removes_a_part_meanwhile_is_removed(
    service: Api, meanwhile: Meanwhile
) -> None:
    an_experiment(service, checkpoints={"keep": 2})
    trained(service, 0.9)
    held = start(service)
    first, _ = save(held, 0.1), save(held, 0.1)
    held.finish()

    def remove_first() -> None:
        with service.app.state.context.database.write() as session:
            row = session.query(CheckpointRow).filter_by(uri=first).one()
            row.removed_at, row.removed_why = row.at, "the other service says why"

    meanwhile(remove_first)
    retain(service)
    assert set(deletions(service)) == {folder(held)}


def test_a_trial_that_ends_meanwhile_does_not_keep_retention_from_its_work(service: Api, meanwhile: Meanwhile) -> None:
    an_experiment(service)
    worse, _ = trained(service, 0.1), trained(service, 0.9)
    runs = start(service)
    save(runs, 0.5)
    meanwhile(runs.finish)
    retain(service)
    assert set(deletions(service)) == {folder(worse)}
    retain(service)
    assert set(deletions(service)) == {folder(worse), folder(runs)}


def test_an_experiment_that_is_deleted_meanwhile_is_left_alone(service: Api, meanwhile: Meanwhile) -> None:
    name = an_experiment(service)
    for accuracy in (0.1, 0.9):
        trained(service, accuracy)
    service.post(f"/v1/experiments/{name}/stop")
    meanwhile(lambda: service.call("DELETE", f"/v1/experiments/{name}", 204))
    for _ in range(2):
        retain(service)
    assert len(deletions(service)) == 1, "that of the experiment's whole folder"
