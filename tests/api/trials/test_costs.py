"""What attempts cost, as their holders tell it, and the sums of trials and experiments."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from service.operations.attempts.lease_expiry import expire_leases
from service.store.tables import AttemptRow, TrialRow
from tests.conftest import Api, Held

pytestmark = pytest.mark.slow

AGENTS = {"kind": "torch", "entrypoint": "train:train_fn", "scaling": {"num_workers": 2, "use_gpu": True}}
ROOM = {"CPU": 8.0, "GPU": 4.0}
NODES = [{"total": ROOM, "free": ROOM}]
PHASES = {"data": 2.0, "training": 20.0, "checkpointing": 3.0, "reporting": 4.0, "idle": 1.0}
HELD = ("starting", "data", "training", "checkpointing", "reporting", "idle", "unknown")
"""The phases from the claim to the end."""


def claimed(service: Api, name: str) -> Held:
    held = service.claim(nodes=NODES)
    assert held
    assert held.assignment["experiment"] == name
    return held


def an_experiment(service: Api, **changes: Any) -> str:
    return str(service.create(trainer=AGENTS, **changes)["name"])


def let_pass(service: Api, held: Held, seconds: float) -> None:
    """Move what is stored of the attempt into the past: the database's clock cannot be set."""
    past = timedelta(seconds=seconds)
    with service.app.state.context.database.write() as session:
        for row in session.query(AttemptRow).filter_by(trial_id=held.trial, ended_at=None):
            row.started_at -= past
            row.lease_expires_at = row.lease_expires_at and row.lease_expires_at - past
            row.queued_at = row.queued_at and row.queued_at - past
            row.began_at = row.began_at and row.began_at - past


def seconds_between(attempt: dict[str, Any], first: str, last: str) -> float:
    times = [datetime.fromisoformat(attempt[name]) for name in (first, last)]
    return (times[1] - times[0]).total_seconds()


def phases_of(cost: dict[str, Any]) -> dict[str, Any]:
    return {phase: cost[f"{phase}_seconds"] for phase in HELD}


def told(phases: dict[str, float]) -> dict[str, Any]:
    return {"phases": phases}


def test_an_attempt_shows_where_its_time_went(service: Api) -> None:
    held = claimed(service, an_experiment(service))
    let_pass(service, held, 100)
    held.report(accuracy=0.5)
    held.finish(phases=PHASES)
    [attempt] = held.shown()["attempts"]
    cost, elapsed = attempt["cost"], seconds_between(attempt, "started_at", "ended_at")
    assert {phase: cost[f"{phase}_seconds"] for phase in PHASES} == pytest.approx(PHASES, abs=0.001)
    assert cost["starting_seconds"] == pytest.approx(seconds_between(attempt, "started_at", "began_at"), abs=0.01)
    assert seconds_between(attempt, "began_at", "ended_at") == pytest.approx(sum(PHASES.values()), abs=0.01)
    assert sum(phases_of(cost).values()) == pytest.approx(elapsed, abs=0.01)
    assert cost["unknown_seconds"] == 0
    assert cost["worker_seconds"] == cost["gpu_seconds"] == pytest.approx(2 * elapsed, abs=0.01)


def test_what_passes_while_the_end_is_delivered_is_idle_time(service: Api) -> None:
    held = claimed(service, an_experiment(service))
    held.call("heartbeat", body={"running_seconds": 0, "phases": PHASES | {"training": 0}})
    let_pass(service, held, 100)
    held.report(accuracy=0.5)
    held.finish(phases=PHASES)
    cost = held.shown()["attempts"][0]["cost"]
    assert cost["idle_seconds"] >= 100 - sum(PHASES.values())
    assert (cost["training_seconds"], cost["unknown_seconds"]) == (PHASES["training"], 0)


def test_a_lost_attempt_keeps_what_its_last_heartbeat_told(service: Api) -> None:
    name = an_experiment(service)
    held = claimed(service, name)
    let_pass(service, held, 50)
    held.call("heartbeat", body={"running_seconds": 30, "phases": PHASES})
    context = service.app.state.context
    silence = context.settings.lease_seconds + 200
    let_pass(service, held, silence)
    expire_leases(context)
    shown = held.shown()
    cost = shown["attempts"][0]["cost"]
    assert shown["status"] == "queued"
    assert {phase: cost[f"{phase}_seconds"] for phase in PHASES} == PHASES
    assert cost["starting_seconds"] >= 20
    assert cost["unknown_seconds"] >= silence - 10
    assert shown["cost"] == cost


def test_a_holder_of_an_earlier_version_leaves_the_phases_unknown(service: Api) -> None:
    held = claimed(service, an_experiment(service))
    let_pass(service, held, 100)
    held.report(accuracy=0.5)
    held.finish()
    cost = held.shown()["attempts"][0]["cost"]
    assert [phase for phase, seconds in phases_of(cost).items() if seconds is not None] == ["unknown"]
    assert cost["unknown_seconds"] >= 100
    assert cost["worker_seconds"] >= 200


def test_an_attempt_whose_function_never_began_was_starting_all_the_time(service: Api) -> None:
    held = claimed(service, an_experiment(service))
    let_pass(service, held, 100)
    held.fail("cannot_start", "no module", phases={})
    attempt = held.shown()["attempts"][0]
    assert attempt["began_at"] is None
    elapsed = seconds_between(attempt, "started_at", "ended_at")
    nothing = dict.fromkeys(HELD, 0) | {"starting": pytest.approx(elapsed, abs=0.01)}
    assert phases_of(attempt["cost"]) == nothing


@pytest.mark.parametrize(("outcome", "kind"), [("failed", "preempted"), ("failed", "lost"), ("stopped", None)])
def test_an_attempt_that_did_not_get_its_resources_held_nothing(service: Api, outcome: str, kind: str | None) -> None:
    name = an_experiment(service)
    held = claimed(service, name)
    let_pass(service, held, 100)
    assert held.shown()["attempts"][0]["cost"]["gpu_seconds"] == 0, "it may still wait for them"
    error = {"kind": kind, "message": "the resources did not become free in time", "began": False}
    held.finish(outcome, error=error if kind else None, phases={})
    cost = held.shown()["attempts"][0]["cost"]
    assert (cost["worker_seconds"], cost["gpu_seconds"]) == (0, 0)
    assert cost["starting_seconds"] >= 100
    assert service.get(f"/v1/experiments/{name}")["cost"] == cost


def test_an_attempt_that_has_reported_held_its_resources_whatever_its_end_says(service: Api) -> None:
    held = claimed(service, an_experiment(service))
    let_pass(service, held, 100)
    held.report(accuracy=0.5)
    held.finish("failed", error={"kind": "preempted", "message": "a node was drained", "began": False}, phases={})
    assert held.shown()["attempts"][0]["cost"]["gpu_seconds"] >= 200


def test_an_attempt_that_was_preempted_once_it_had_begun_held_its_resources(service: Api) -> None:
    held = claimed(service, an_experiment(service))
    let_pass(service, held, 100)
    held.fail("preempted", "a node was drained", phases={})
    cost = held.shown()["attempts"][0]["cost"]
    assert min(cost["worker_seconds"], cost["gpu_seconds"]) >= 200


def test_a_running_attempt_shows_its_cost_until_now(service: Api) -> None:
    name = an_experiment(service)
    held = claimed(service, name)
    let_pass(service, held, 100)
    held.call("heartbeat", body={"running_seconds": 30, "phases": PHASES})
    shown = held.shown()
    cost = shown["attempts"][0]["cost"]
    assert cost["training_seconds"] == PHASES["training"]
    assert cost["starting_seconds"] >= 70
    assert cost["worker_seconds"] >= 200
    assert shown["cost"] is None
    assert service.get(f"/v1/experiments/{name}")["cost"] is None


def test_the_time_in_the_queue_is_no_time_of_the_workers(service: Api) -> None:
    held = claimed(service, an_experiment(service, enqueue=[{"lr": 0.1}]))
    with service.app.state.context.database.write() as session:
        [row] = session.query(AttemptRow).filter_by(trial_id=held.trial)
        row.queued_at -= timedelta(seconds=1000)
    held.report(accuracy=0.5)
    held.finish(phases=PHASES)
    cost = held.shown()["attempts"][0]["cost"]
    assert cost["waiting_seconds"] >= 1000
    assert cost["worker_seconds"] < 1000


def test_a_retry_waits_from_the_end_of_the_attempt_before(service: Api) -> None:
    name = an_experiment(service)
    first = claimed(service, name)
    let_pass(service, first, 1000)
    first.fail("lost", "the node is gone", phases={})
    second = claimed(service, name)
    assert second.trial == first.trial
    attempts = second.shown()["attempts"]
    assert attempts[1]["cost"]["waiting_seconds"] < 1000
    assert attempts[1]["cost"]["waiting_seconds"] == pytest.approx(
        (
            datetime.fromisoformat(attempts[1]["started_at"]) - datetime.fromisoformat(attempts[0]["ended_at"])
        ).total_seconds(),
        abs=0.01,
    )


def test_a_trial_that_a_user_retries_waits_from_then_on(service: Api) -> None:
    name = an_experiment(service)
    held = claimed(service, name)
    with service.app.state.context.database.write() as session:
        session.get_one(TrialRow, held.trial).queued_at -= timedelta(seconds=1000)
    held.fail(phases={})
    service.post(f"/v1/trials/{held.trial}/retry")
    again = claimed(service, name)
    assert again.trial == held.trial
    assert again.shown()["attempts"][1]["cost"]["waiting_seconds"] < 1000


def test_trial_and_experiment_have_the_sums_of_their_ended_attempts(service: Api) -> None:
    name = an_experiment(service)
    for outcome in ("lost", None, None):
        held = claimed(service, name)
        let_pass(service, held, 100)
        if outcome:
            held.fail(outcome, "the node is gone", phases=PHASES)
        else:
            held.report(accuracy=0.5)
            held.finish(phases=PHASES)
    trials = [service.get(f"/v1/trials/{one['id']}") for one in service.get(f"/v1/experiments/{name}/trials")["items"]]
    assert [len(trial["attempts"]) for trial in trials] == [2, 1]
    whole = service.get(f"/v1/experiments/{name}")["cost"]
    for field in whole:
        for trial in trials:
            assert trial["cost"][field] == pytest.approx(sum(a["cost"][field] for a in trial["attempts"]), abs=0.01)
        assert whole[field] == pytest.approx(sum(trial["cost"][field] for trial in trials), abs=0.01)
    assert whole["training_seconds"] == pytest.approx(60, abs=0.01)
    [listed] = [one for one in service.get("/v1/experiments")["items"] if one["name"] == name]
    assert listed["cost"] == whole


def test_a_repeated_end_counts_once(service: Api) -> None:
    held = claimed(service, an_experiment(service))
    held.report(accuracy=0.5)
    held.finish(phases=PHASES)
    before = held.shown()["cost"]
    held.finish(phases=PHASES | {"training": 1000})
    assert held.shown()["cost"] == before


def test_a_caller_that_runs_a_trial_itself_may_tell_its_phases(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    let_pass(service, held, 100)
    held.report(accuracy=0.5)
    held.finish(phases={"training": 60})
    shown = held.shown()["attempts"][0]
    cost = shown["cost"]
    assert (cost["starting_seconds"], cost["training_seconds"], cost["unknown_seconds"]) == (0, 60, 0)
    assert cost["idle_seconds"] >= 40
    assert cost["gpu_seconds"] == 0
    assert shown["began_at"] is None


@pytest.mark.parametrize("wrong", [{"training": -1}, {"training": "1"}, {"lunch": 1}, {"idle": None}])
def test_wrong_phases_are_refused_and_change_nothing(service: Api, wrong: dict[str, Any]) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.finish(status=422, phases=wrong)
    held.call("heartbeat", 422, body={"phases": wrong})
    assert held.shown()["attempts"][0]["cost"]["training_seconds"] is None


def test_the_events_have_the_costs_of_the_attempt_and_of_its_trial(service: Api) -> None:
    name = an_experiment(service)
    for _ in range(2):
        held = claimed(service, name)
        let_pass(service, held, 100)
        held.fail("lost", "the node is gone", phases=PHASES)
    events = service.events(name)
    own = [event["data"]["cost"]["training_seconds"] for event in events if event["kind"] == "attempt.ended"]
    sums = [event["data"]["cost"]["training_seconds"] for event in events if event["kind"] == "trial.queued"]
    assert own == [20, 20]
    assert sums == [20, 40]
