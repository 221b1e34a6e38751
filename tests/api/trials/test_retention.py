"""What becomes of the checkpoints of trials that are not among the best: from the spec to the agents."""

from datetime import timedelta
from typing import Any

import pytest

from service.app import application
from service.background.checkpoint_retention import CheckpointRetention
from service.operations.checkpoints import retention_plan
from service.settings import Settings
from service.store.checkpoints.missing_checkpoints import MISSES
from tests.api.early_stopping.population import a_population
from tests.conftest import Api, Held, running

pytestmark = pytest.mark.slow

TORCH = {"kind": "torch", "entrypoint": "train:train_fn"}


class NoRetention(CheckpointRetention):
    """The service's own loop, which must not come before the test. Its first pass is a second after the start."""

    def run_once(self) -> None:
        pass


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that have ended count as settled, and only the test applies retention."""
    monkeypatch.setattr(retention_plan, "SETTLED_AFTER", timedelta(0))
    monkeypatch.setattr(application, "CheckpointRetention", NoRetention)


def an_experiment(service: Api, keep_best_trials: int | None = 1, **changes: Any) -> str:
    checkpoints = {"keep": 1, "keep_best_trials": keep_best_trials, **changes.pop("checkpoints", {})}
    limits = {"max_trials": 10, "parallelism": 10}
    return str(service.create(trainer=TORCH, limits=limits, checkpoints=checkpoints, **changes)["name"])


def start(service: Api) -> Held:
    held = service.claim()
    assert held
    return held


def save(held: Held, accuracy: float, size: int = 100) -> str:
    """Report with a checkpoint in the folder of the attempt's run; returns its URI."""
    uri = f"{held.assignment['storage_path']}/{held.assignment['run_name']}/checkpoint_{held.sequence}"
    held.report(accuracy=accuracy, checkpoint=uri, checkpoint_bytes=size)
    return uri


def trained(service: Api, accuracy: float, outcome: str = "completed") -> Held:
    held = start(service)
    save(held, accuracy)
    held.finish(outcome)
    return held


def retain(service: Api) -> None:
    CheckpointRetention(service.app.state.context).run_once()


def folder(held: Held) -> str:
    return f"{held.assignment['storage_path']}/{held.assignment['run_name']}"


def deletions(service: Api, agent: str = "here") -> dict[str, int]:
    return {one["directory"]: one["id"] for one in service.get(f"/v1/agents/{agent}/attempts")["deletions"]}


def plan(service: Api, name: str, **params: Any) -> dict[int, tuple[str, str]]:
    """What is to become of each trial's only checkpoint, and why, by the trial's number."""
    found = service.get(f"/v1/experiments/{name}/checkpoints/plan", params=params)["items"]
    return {one["trial_number"]: (one["action"], one["why"]) for one in found}


def test_the_best_trials_keep_their_best_checkpoints_beside_the_newest(service: Api) -> None:
    best = [{"metric": "accuracy", "direction": "maximize", "report": "best"}]
    name = an_experiment(service, objectives=best)
    kept, worse = start(service), start(service)
    for held, values in ((kept, (0.9, 0.5, 0.2)), (worse, (0.8, 0.7, 0.75))):
        for value in values:
            save(held, value)
        held.finish()
    retain(service)
    both = [service.get(f"/v1/trials/{held.trial}/checkpoints")["items"] for held in (kept, worse)]
    assert [[(one["step"], one["removed_at"] is None) for one in left] for left in both] == [
        [(3, True), (1, True)],
        [(3, False), (1, False)],
    ]
    assert service.get(f"/v1/experiments/{name}/best")["checkpoint"]["step"] == 1


def test_the_checkpoints_of_trials_that_are_not_among_the_best_are_removed_by_their_agent(service: Api) -> None:
    name = an_experiment(service)
    worse, best, after = (trained(service, accuracy) for accuracy in (0.5, 0.9, 0.7))
    before = service.get(f"/v1/experiments/{name}/checkpoints/plan")
    assert (before["remove"], before["keep"]) == ({"count": 2, "bytes": 200}, {"count": 1, "bytes": 100})
    assert plan(service, name)[0] == ("remove", "trial 0 (completed) is not among the best 1")
    assert deletions(service) == {}, "the dry run changes nothing"
    for _ in range(2):
        retain(service)
        assert set(deletions(service)) == {folder(worse), folder(after)}
    assert worse.shown()["checkpoint"] is None
    assert worse.shown()["checkpoint_bytes"] == 0
    [gone] = service.get(f"/v1/trials/{worse.trial}/checkpoints")["items"]
    assert gone["removed_at"]
    assert gone["removed_why"] == "trial 0 (completed) is not among the best 1"
    assert best.shown()["checkpoint"]["removed_at"] is None
    assert service.get(f"/v1/experiments/{name}")["checkpoint_bytes"] == 100
    removals = [event for event in service.events(name) if event["kind"] == "checkpoint.removed"]
    assert [event["trial"] for event in removals] == [worse.trial, after.trial]
    assert set(plan(service, name)) == {1}
    problem = service.call("PUT", f"/v1/trials/{worse.trial}/checkpoints/1/pin", 409)
    assert "not among the best 1" in problem["detail"]


def test_the_winners_keep_theirs_although_a_repetition_of_the_best_one_is_better(service: Api) -> None:
    """`confirm` takes the best configurations, `keep_best_trials` counts trials."""
    enqueue = [{"lr": 0.1}, {"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]
    name = an_experiment(service, 2, confirm={"top": 2, "seeds": 3}, enqueue=enqueue)
    _, _, second, third = (trained(service, accuracy) for accuracy in (0.9, 0.89, 0.8, 0.7))
    assert plan(service, name)[2] == ("keep", "trial 2 is, or may be, among the winners that confirm runs again")
    retain(service)
    assert set(deletions(service)) == {folder(third)}
    for _ in range(6):
        confirmation = start(service)
        confirmation.report(accuracy=0.95 if confirmation.shown()["confirms"] == 2 else 0.2)
        confirmation.finish()
    retain(service)
    best = service.get(f"/v1/experiments/{name}/best")
    assert (best["id"], best["checkpoint"]["removed_at"]) == (second.trial, None)
    assert plan(service, name)[1] == ("keep", "trial 1 (completed) is among the best 2")


def test_a_confirmation_does_not_displace_the_trial_that_it_confirms(service: Api) -> None:
    name = an_experiment(service, confirm={"top": 1, "seeds": 2})
    searched = [trained(service, accuracy) for accuracy in (0.5, 0.8, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    confirmations = [trained(service, 0.9) for _ in range(2)]
    assert [one.shown()["confirms"] for one in confirmations] == [1, 1]
    retain(service)
    assert service.get(f"/v1/experiments/{name}/best")["checkpoint"]["removed_at"] is None
    assert set(deletions(service)) == {folder(one) for one in searched + confirmations} - {folder(searched[1])}


def test_a_removal_survives_a_restart_and_ends_when_the_agent_has_deleted_the_folder(
    service: Api, settings: Settings
) -> None:
    an_experiment(service)
    trained(service, 0.9)
    worse = trained(service, 0.5)
    retain(service)
    with running(settings) as after_a_restart:
        [(directory, id_)] = deletions(after_a_restart).items()
    assert directory == folder(worse)
    service.post("/v1/agents/here/deletions", 204, json={"deleted": [id_]})
    retain(service)
    assert deletions(service) == {}


def test_pinned_checkpoints_and_those_of_trials_that_go_on_or_may_be_retried_are_kept(service: Api) -> None:
    name = an_experiment(service)
    best, pinned = trained(service, 0.9), trained(service, 0.2)
    service.call("PUT", f"/v1/trials/{pinned.trial}/checkpoints/1/pin", 200)
    failed, stopped, runs = start(service), start(service), start(service)
    for held in (failed, stopped, runs):
        save(held, 0.1)
    failed.fail()
    stopped.finish("stopped")
    retain(service)
    assert deletions(service) == {}
    assert {number: why for number, (_, why) in plan(service, name).items()} == {
        0: "trial 0 (completed) is among the best 1",
        1: "it is pinned",
        2: "trial 2 resumes from it if it is retried",
        3: "trial 3 resumes from it if it is retried",
        4: "trial 4 is running",
    }
    runs.finish()
    service.call("DELETE", f"/v1/trials/{pinned.trial}/checkpoints/1/pin", 200)
    retain(service)
    assert set(deletions(service)) == {folder(pinned), folder(runs)}
    assert best.shown()["checkpoint"]


@pytest.mark.parametrize("keep_last", [True, False])
def test_after_the_end_the_last_checkpoint_of_a_stopped_trial_is_kept_on_request(service: Api, keep_last: bool) -> None:
    name = an_experiment(service, checkpoints={"keep_last": keep_last})
    trained(service, 0.9)
    stopped = trained(service, 0.5, "stopped")
    retain(service)
    assert deletions(service) == {}, "it may be retried"
    service.post(f"/v1/experiments/{name}/stop")
    assert plan(service, name, keep_last=True)[1][0] == "keep"
    assert plan(service, name, keep_last=False)[1][0] == "remove"
    retain(service)
    assert set(deletions(service)) == (set() if keep_last else {folder(stopped)})


def test_a_trial_without_its_removed_checkpoint_starts_again_from_the_beginning(service: Api) -> None:
    name = an_experiment(service, checkpoints={"keep_last": False})
    trained(service, 0.9)
    stopped = trained(service, 0.5, "stopped")
    limits = {"limits": {"max_trials": 2}}
    service.http.patch(f"/v1/experiments/{name}", json=limits).raise_for_status()
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    retain(service)
    assert set(deletions(service)) == {folder(stopped)}
    limits = {"limits": {"max_trials": 9}}
    service.http.patch(f"/v1/experiments/{name}", json=limits).raise_for_status()
    service.post(f"/v1/trials/{stopped.trial}/retry")
    again = start(service)
    assert (again.trial, again.assignment["resume"]) == (stopped.trial, None)
    uri = save(again, 0.6)
    [present] = service.get(f"/v1/trials/{again.trial}/checkpoints")["items"][:1]
    assert (present["uri"], present["removed_at"]) == (uri, None)


def test_a_retried_trial_resumes_although_its_siblings_lose_their_checkpoints(service: Api) -> None:
    an_experiment(service)
    trained(service, 0.9)
    failed = start(service)
    uri = save(failed, 0.1)
    failed.fail()
    retain(service)
    service.post(f"/v1/trials/{failed.trial}/retry")
    again = start(service)
    assert again.trial == failed.trial
    assert again.assignment["resume"]["uri"] == uri
    retain(service)
    newer = save(again, 0.2)
    again.finish()
    retain(service)
    assert set(deletions(service)) == {folder(again)}
    assert [one["uri"] for one in again.api.get(f"/v1/trials/{again.trial}/checkpoints")["items"]] == [newer]


def test_a_donors_checkpoint_stays_until_the_trial_that_adopted_it_has_its_own(service: Api) -> None:
    limits = {"max_trials": 4, "parallelism": 4}
    checkpoints = {"keep": 1, "keep_best_trials": 1}
    spec = a_population(limits=limits, trainer=TORCH, checkpoints=checkpoints)
    name = str(service.create(**spec)["name"])
    for _ in range(2):
        held = [start(service) for _ in range(4)]
        for one in held:
            for step in (1, 2):
                uri = f"{folder(one)}/{step}"
                one.report(loss=1 + one.assignment["number"] - step / 100, checkpoint=uri)
            one.finish("stopped")
        retain(service)
        assert deletions(service) == {}
    last = {one.assignment["number"]: one for one in (start(service) for _ in range(4))}
    adopted = last[3].assignment["resume"]["uri"]
    assert last[0].assignment["resume"]["uri"] == adopted
    for step in (1, 2):
        last[0].report(loss=0.5, checkpoint=f"{folder(last[0])}/{step}")
    last[0].finish()
    retain(service)
    assert adopted not in deletions(service)
    assert not any(adopted.startswith(f"{directory}/") for directory in deletions(service))
    assert service.get(f"/v1/experiments/{name}")["status"] == "running"


def test_checkpoints_that_no_slot_has_saved_are_left_to_those_who_have(service: Api) -> None:
    name = an_experiment(service)
    trained(service, 0.9)
    for uri in ("/etc", "/data/../etc/{run}/c", "/data/trial-0-attempt-1/c", "/data/{run}"):
        held = start(service)
        held.report(accuracy=0.1, checkpoint=uri.format(run=held.assignment["run_name"]))
        held.finish()
    by_hand = service.ask(name)
    assert by_hand
    save(by_hand, 0.1)
    by_hand.finish()
    retain(service)
    assert deletions(service) == {}
    assert "an external program saved it" in plan(service, name)[5][1]


def test_another_objective_ranks_on_request_and_the_pareto_front_is_kept(service: Api) -> None:
    objectives = [{"metric": "accuracy", "direction": "maximize"}, {"metric": "ms", "direction": "minimize"}]
    by_metric = an_experiment(service, objectives=objectives, checkpoints={"metric": "ms"})
    found = []
    for accuracy, milliseconds in ((0.9, 30), (0.8, 10), (0.7, 20)):
        held = start(service)
        uri = f"{folder(held)}/c"
        held.report(accuracy=accuracy, ms=milliseconds, checkpoint=uri)
        held.finish()
        found.append(held)
    assert {number: action for number, (action, _) in plan(service, by_metric).items()} == {
        0: "remove",
        1: "keep",
        2: "remove",
    }
    service.http.patch(f"/v1/experiments/{by_metric}", json={"checkpoints": {"metric": None}}).raise_for_status()
    assert plan(service, by_metric) == {
        0: ("keep", "no completed trial beats trial 0 in all objectives"),
        1: ("keep", "no completed trial beats trial 1 in all objectives"),
        2: ("remove", "trial 2 (completed) is not among the best 1"),
    }


def test_without_the_rule_all_trials_keep_theirs_and_the_plan_tries_others(service: Api) -> None:
    name = an_experiment(service, None)
    for accuracy in (0.1, 0.2, 0.3):
        trained(service, accuracy)
    retain(service)
    assert {action for action, _ in plan(service, name).values()} == {"keep"}
    tried = plan(service, name, keep_best_trials=2)
    assert {number: action for number, (action, _) in tried.items()} == {0: "remove", 1: "keep", 2: "keep"}
    first = service.get(f"/v1/experiments/{name}/checkpoints/plan", params={"limit": 2})
    assert [one["trial_number"] for one in first["items"]] == [0, 1]
    assert first["keep"]["count"] == 3
    rest = service.get(f"/v1/experiments/{name}/checkpoints/plan", params={"cursor": first["next_cursor"]})
    assert ([one["trial_number"] for one in rest["items"]], rest["next_cursor"]) == ([2], None)
    assert deletions(service) == {}
    changed_to = {"checkpoints": {"keep_best_trials": 2}}
    service.http.patch(f"/v1/experiments/{name}", json=changed_to).raise_for_status()
    retain(service)
    assert len(deletions(service)) == 1
    service.get("/v1/experiments/nothing/checkpoints/plan", 404)


def test_the_rule_can_be_set_when_the_experiment_has_ended(service: Api) -> None:
    name = an_experiment(service, keep_best_trials=None)
    worse, best = trained(service, 0.5), trained(service, 0.9)
    service.post(f"/v1/experiments/{name}/stop")
    retain(service)
    assert deletions(service) == {}
    rule = {"checkpoints": {"keep_best_trials": 1}}
    assert service.http.patch(f"/v1/experiments/{name}", json=rule).json()["status"] == "stopped"
    retain(service)
    assert deletions(service).keys() == {folder(worse)}
    assert best.shown()["checkpoint"] is not None


def test_a_trial_that_has_only_just_ended_keeps_its_checkpoints_for_a_moment(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_plan, "SETTLED_AFTER", timedelta(hours=1))
    name = an_experiment(service)
    trained(service, 0.9)
    trained(service, 0.1)
    loop = CheckpointRetention(service.app.state.context)
    loop.run_once()
    assert plan(service, name)[1] == ("keep", "trial 1 ended less than 15 s ago; its slot may still be writing")
    monkeypatch.setattr(retention_plan, "SETTLED_AFTER", timedelta(0))
    loop.run_once()
    assert len(deletions(service)) == 1


@pytest.mark.parametrize(
    ("checkpoints", "trainer", "mistake"),
    [
        ({"metric": "accuracy"}, TORCH, "checkpoints.metric"),
        ({"metric": "loss", "keep_best_trials": 2}, TORCH, "accuracy"),
        ({"keep_best_trials": 0}, TORCH, "checkpoints.keep_best_trials"),
        ({"keep_best_trials": 2}, {"kind": "external"}, "checkpoints.keep_best_trials"),
    ],
)
def test_a_wrong_rule_is_refused(service: Api, checkpoints: Any, trainer: Any, mistake: str) -> None:
    spec = {
        "name": "refused",
        "space": {"lr": {"type": "float", "low": 0, "high": 1}},
        "objectives": [{"metric": "accuracy", "direction": "maximize"}],
    }
    refused = service.post("/v1/experiments", 422, json={**spec, "trainer": trainer, "checkpoints": checkpoints})
    assert mistake in str(refused)


def test_how_many_a_trial_keeps_cannot_change_while_it_runs(service: Api) -> None:
    name = an_experiment(service)
    refused = service.http.patch(f"/v1/experiments/{name}", json={"checkpoints": {"keep": 2}})
    assert refused.status_code == 422
    assert "checkpoints.keep" in refused.text


def test_of_a_trial_whose_newest_checkpoint_is_missing_the_one_that_a_retry_resumes_from_is_kept(service: Api) -> None:
    name = an_experiment(service, checkpoints={"keep": 3})
    trained(service, 0.9)
    first = start(service)
    oldest, older, newest = (save(first, 0.1) for _ in range(3))
    first.fail("lost", "its node is gone")
    for _ in range(MISSES):
        missing = {"kind": "lost", "message": "it is not there", "is_checkpoint_missing": True}
        start(service).finish("failed", error=missing)
    start(service).fail()
    retain(service)
    assert set(deletions(service)) == {oldest, newest}
    assert plan(service, name)[1] == ("keep", "trial 1 resumes from it if it is retried")
    service.post(f"/v1/trials/{first.trial}/retry")
    assert start(service).assignment["resume"] == {"uri": older, "step": 2}
