"""Read back through MLflow's own client from a real MLflow server."""

import math
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from service.mirror.mlflow_errors import MlflowUnavailable, MlflowUnreachable
from service.mirror.tracking_server.tracking_client import TrackingClient
from service.stack.ports import free_port
from service.store.mirrors import advance, lag
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MirrorRow
from tests.mirror.mirrored_runs import everything, forget

pytestmark = pytest.mark.slow


def test_a_trial_is_a_child_run_with_its_parameters_curve_and_end(
    mirror: Any, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment()
    trial = history.trial(7, lr=0.25, layers=[16, 32])
    history.run(trial)
    began = history.now - timedelta(seconds=1)
    history.report(trial, 1, val_accuracy=0.5, note="not a number", best=True)
    history.report(trial, 2, val_accuracy=0.75)
    history.append("checkpoint", {"attempt": 1, "step": 2, "uri": "/data/checkpoint_2"}, trial)
    history.end(trial, "completed", 0.75)

    mirror.catch_up()

    runs = mirror.runs(history.name)
    parent, run = runs[history.name], runs["trial 07"]
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert run.data.params == {"epochs": "4", "lr": "0.25", "layers": "[16, 32]"}
    assert mirror.curve(run, "val_accuracy") == [(1, 0.5), (2, 0.75)]
    assert run.data.metrics == {"val_accuracy": 0.75, "best": 1.0}
    assert run.info.status == "FINISHED"
    assert run.info.start_time == round(began.timestamp() * 1000)
    assert run.info.end_time == round((history.now - timedelta(seconds=1)).timestamp() * 1000)
    assert run.data.tags["paceline.trial_id"] == trial
    assert run.data.tags["paceline.checkpoint"] == "/data/checkpoint_2"
    assert run.data.tags["mlflow.source.name"] == "train:train_fn"


def test_a_trial_that_begins_takes_three_writes(
    mirror: Any, begin_experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for the parent's counts, create, log. Each costs MLflow a write to disk, but not the reads."""
    history = begin_experiment()
    history.run(history.trial(0, lr=0.1))
    mirror.catch_up()
    history.run(history.trial(1, lr=0.1))
    calls: list[str] = []
    this_thread = threading.get_ident()
    send = requests.Session.request

    def record(session: requests.Session, method: str, url: str, **options: Any) -> Any:
        if threading.get_ident() == this_thread:  # others may still end what an earlier test began
            calls.append(urlsplit(url).path.partition("/mlflow/")[2])
        return send(session, method, url, **options)

    with monkeypatch.context() as patch:
        patch.setattr(requests.Session, "request", record)
        mirror.catch_up()

    # MLflow's client asks again each minute what the server can do.
    writes = ["runs/log-batch", "runs/search", "runs/create", "runs/search", "runs/log-batch"]
    assert [call for call in calls if call != "server-info"] == ["runs/get", *writes, "runs/get"]
    run = mirror.runs(history.name)["trial 01"]
    assert (run.info.status, run.data.params["lr"]) == ("RUNNING", "0.1")


def test_a_pruned_trial_says_why(mirror: Any, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    history.report(trial, 3, val_accuracy=0.4)
    decision = {"attempt": 1, "step": 3, "decision": "stop", "rule": "asha", "value": 0.4, "cutoff": 0.61}
    history.append("decision", {**decision, "compared_count": 9, "milestone": 3, "reason": "0.4 is below 0.61"}, trial)
    history.end(trial, "pruned", 0.4, "0.4 is below 0.61")

    mirror.catch_up()

    run = mirror.runs(history.name)["trial 00"]
    assert run.info.status == "FINISHED"
    tags = run.data.tags
    assert tags["paceline.status"] == "pruned"
    assert tags["paceline.decision.reason"] == "0.4 is below 0.61"
    assert (tags["paceline.decision.rung"], tags["paceline.decision.cutoff"]) == ("3", "0.61")
    assert tags["mlflow.note.content"] == "pruned: 0.4 is below 0.61"


def test_a_trial_that_pauses_and_resumes_keeps_its_run(mirror: Any, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    history.report(trial, 1, val_accuracy=0.4)
    history.append("trial.paused", {"number": 0, "milestone": 1, "step": 1, "reason": "0.4 is below 0.6"}, trial)
    mirror.catch_up()
    run = mirror.runs(history.name)["trial 00"]
    assert (run.info.status, run.info.end_time) == ("SCHEDULED", None)
    assert run.data.tags["mlflow.note.content"] == "paused at step 1: 0.4 is below 0.6"
    history.append("trial.queued", {"number": 0, "reason": "0.4 is above 0.3: promoted"}, trial)
    history.run(trial)
    mirror.catch_up()
    again = mirror.runs(history.name)["trial 00"]
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "RUNNING")


@pytest.mark.parametrize(("status", "expected"), [("failed", "FAILED"), ("stopped", "KILLED")])
def test_a_failed_or_stopped_trial_has_that_status(
    mirror: Any, begin_experiment: Callable[..., Any], status: str, expected: str
) -> None:
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    failure = {"attempt": 1, "outcome": "failed", "kind": "user_error", "message": "ValueError: no"}
    history.append("attempt.ended", failure, trial)
    history.end(trial, status, reason="ValueError: no")

    mirror.catch_up()

    run = mirror.runs(history.name)["trial 00"]
    assert run.info.status == expected
    assert run.data.tags["paceline.failure.message"] == "ValueError: no"


def test_a_trial_that_lost_its_worker_continues_in_the_same_run(
    mirror: Any, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    assert mirror.catch_up() == 2
    history.run(trial)
    history.append("trial.queued", {"reason": "the node is gone"}, trial)
    mirror.catch_up()
    assert mirror.runs(history.name)["trial 00"].info.status == "SCHEDULED"

    history.run(trial)
    history.report(trial, 1, val_accuracy=0.5)
    mirror.catch_up()

    assert mirror.runs(history.name)["trial 00"].info.status == "RUNNING"


def test_the_parent_shows_the_best_so_far_and_the_end(mirror: Any, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    history.completed_trial(2, 0.9)
    mirror.catch_up()  # the best so far must come from before this batch too
    history.completed_trial(1, 0.7)
    history.completed_trial(3, 0.9)
    history.finish("completed", "max_trials")

    mirror.catch_up()

    name = history.name
    parent = mirror.runs(name)[name]
    assert mirror.curve(parent, "best_val_accuracy") == [(1, 0.5), (2, 0.9), (3, 0.9), (4, 0.9)]
    assert parent.info.status == "FINISHED"
    tags = parent.data.tags
    assert (tags["paceline.best_trial"], tags["paceline.trials"]) == ("2", "4 completed")
    assert (tags["paceline.status"], tags["paceline.why_ended"]) == ("completed", "max_trials")
    assert tags["paceline.package"] == "sha256:" + "ab" * 32
    assert tags["team"] == "vision"
    assert "reduction_factor: 3" in tags["paceline.spec"]
    assert parent.data.params["sampler"] == "tpe"
    assert parent.data.params["objective"] == "maximize val_accuracy"


def test_nan_and_infinity_are_mirrored(mirror: Any, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    for step, value in enumerate(["NaN", "Infinity", "-Infinity"]):
        history.report(trial, step, **{"loss [mean]": value})

    mirror.catch_up()

    curve = mirror.curve(mirror.runs(history.name)["trial 00"], "loss _mean_")
    assert math.isnan(curve[0][1])
    assert curve[1][1] > 1e308
    assert curve[2][1] < -1e308


def test_a_repeated_batch_duplicates_nothing(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    history = begin_experiment()
    first, second = history.completed_trial(0, 0.5), history.completed_trial(1, 0.6)
    history.report(first, 2, val_accuracy="NaN")
    sample = {"at": history.now.isoformat(), "step": 4, "metrics": {"cpu_utilization_percentage": 30.0}}
    history.append("attempt.system_metrics", {"attempt": 1, "samples": [sample]}, first)
    mirror.catch_up()
    before = everything(mirror, history)
    assert "'system/cpu_utilization_percentage': '[(4, 30.0)]'" in str(before)

    forget(database, history)
    assert mirror.catch_up() > 0

    assert everything(mirror, history) == before
    assert second in str(before)


def test_a_trial_that_began_meanwhile_is_running_in_a_batch_sent_again(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    """MLflow has the run from the first time, as SCHEDULED."""
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    history.append("trial.queued", {"number": 0, "reason": "tried again"}, trial)
    mirror.catch_up()
    assert mirror.runs(history.name)["trial 00"].info.status == "SCHEDULED"
    history.run(trial)

    forget(database, history)
    mirror.catch_up()

    assert mirror.runs(history.name)["trial 00"].info.status == "RUNNING"


def test_the_mirror_says_whether_it_is_behind(
    mirror: Any, begin_experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.mirror.batches.event_batches.MAX_EVENTS", 3)
    history = begin_experiment()  # one event, and four of the trial
    history.completed_trial(0, 0.5)
    assert (mirror.loop.run_once(), mirror.loop.is_behind) == (3, True)
    assert (mirror.loop.run_once(), mirror.loop.is_behind) == (2, False)


def test_a_batch_ends_where_its_metrics_are_many(
    mirror: Any, begin_experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an experiment with thousands of metrics does not hold up the others."""
    monkeypatch.setattr("service.mirror.batches.event_batches.MAX_POINTS", 4)
    history, other = begin_experiment(), begin_experiment("x-00000000000b", name="beside many metrics")
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    for step in range(4):
        history.report(trial, step, **{f"layer_{number}": step for number in range(3)})
    other.completed_trial(0, 0.5)

    assert (mirror.loop.run_once(), mirror.loop.is_behind) == (5 + 5, True)
    assert "trial 00" in mirror.runs(other.name)
    assert mirror.curve(mirror.runs(history.name)["trial 00"], "layer_2") == [(0, 0), (1, 1)]
    assert (mirror.loop.run_once(), mirror.loop.is_behind) == (2, False)
    assert mirror.curve(mirror.runs(history.name)["trial 00"], "layer_2") == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_front_is_the_same_in_several_batches_and_again_from_the_start(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    objectives = [{"metric": "loss", "direction": "minimize"}, {"metric": "size", "direction": "minimize"}]
    history = begin_experiment(objectives=objectives, constraints=[{"metric": "size", "max": 9, "min": None}])
    for number, (loss, size) in enumerate([(5, 5), (4, 9), (8, 1), (6, 6), (1, 10), (3, 4), (9, 9), (2, 4)]):
        trial = history.trial(number, lr=0.1)
        history.run(trial)
        history.end(trial, "completed", values=[loss, size], feasible=size <= 9)
        if number % 3 == 0:
            mirror.catch_up()
    mirror.catch_up()
    parent = mirror.runs(history.name)[history.name]
    assert parent.data.tags["paceline.pareto_front"] == "2, 7"
    assert [step for step, _ in mirror.curve(parent, "hypervolume")] == [5, 6, 8]
    assert parent.data.params["constraints"] == "size <= 9"
    assert mirror.runs(history.name)["trial 04"].data.tags["paceline.feasible"] == "no"
    assert parent.data.metrics["best_loss"] == 2
    before = everything(mirror, history)

    forget(database, history)
    mirror.catch_up()

    assert everything(mirror, history) == before


def test_a_long_curve_is_sent_in_pieces(mirror: Any, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    for step in range(450):
        history.report(trial, step, val_accuracy=step / 450, loss=1 - step / 450)

    mirror.catch_up()

    run = mirror.runs(history.name)["trial 00"]
    assert [step for step, _ in mirror.curve(run, "loss")] == list(range(450))


def test_the_credentials_in_the_address_of_mlflow_are_not_in_its_error() -> None:
    address = f"http://me:hidden@127.0.0.1:{free_port()}/x?password=hidden&ticket=hidden"
    with pytest.raises(MlflowUnavailable, match=r"password=\*\*\*&ticket=\*\*\*") as caught:
        TrackingClient(address).check_run("a-run")
    assert "hidden" not in str(caught.value)


def test_the_mirror_catches_up_after_mlflow_was_unavailable(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, mlflow_server: Any
) -> None:
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    mirror.catch_up()
    mlflow_server.stop()
    try:
        history.completed_trial(1, 0.6)
        with pytest.raises(
            MlflowUnreachable,
            match=r"MLflow is not reachable at .*: connection refused; the mirror goes on when it is$",
        ):
            mirror.loop.run_once()
        with database.read() as session:
            assert "connection refused" in str(session.get_one(MirrorRow, history.experiment_id).error)
            assert lag(session) == 4
    finally:
        mlflow_server.start()

    mirror.catch_up()

    assert set(mirror.runs(history.name)) >= {"trial 00", "trial 01"}
    with database.read() as session:
        assert session.get_one(MirrorRow, history.experiment_id).error is None
        assert lag(session) == 0


def test_a_name_that_is_taken_in_mlflow_gets_the_experiments_id(
    mirror: Any, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment(name="taken")
    mirror.client.delete_experiment(mirror.client.create_experiment("taken"))

    mirror.catch_up()

    assert mirror.client.get_experiment_by_name(f"taken ({history.experiment_id})") is not None


def test_an_experiment_that_mlflow_refuses_does_not_affect_the_others(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    refused, other = (
        begin_experiment("x-00000000000a", name="refused"),
        begin_experiment("x-00000000000b", name="other"),
    )
    mirror.catch_up()
    mirror.client.delete_experiment(mirror.client.get_experiment_by_name("refused").experiment_id)
    refused.completed_trial(0, 0.5)
    other.completed_trial(0, 0.5)

    mirror.catch_up()

    assert "trial 00" in mirror.runs("other")
    with database.read() as session:
        assert str(session.get_one(MirrorRow, "x-00000000000a").error).startswith("MLflow refused")


def test_an_experiment_deleted_while_it_was_being_sent_is_forgotten(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    history = begin_experiment()
    with database.write() as session:
        session.delete(session.get(ExperimentRow, history.experiment_id))
    with database.write() as session:
        advance(session, history.experiment_id, 0, 5, {})

    with database.read() as session:
        assert session.get(MirrorRow, history.experiment_id) is None
