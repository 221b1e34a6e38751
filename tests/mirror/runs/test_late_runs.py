"""MLflow may create a run after the mirror has stopped waiting for it. One run stays for each trial."""

from collections.abc import Callable
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException, RestException

from service.background.mirroring import MirrorFailed, Mirroring
from service.mirror.mlflow_errors import MlflowUnavailable
from service.mirror.tracking_server.tracking_client import TrackingClient
from service.store import mirrors
from service.store.sql.database import Database
from service.store.tables import ExperimentRow

pytestmark = pytest.mark.slow


class DelayedCreations:
    """A server that creates runs only after the client's timeout, when its database is free again."""

    def __init__(self) -> None:
        self.given_up: list[Callable[[], Any]] = []
        self.is_free = False
        self.failures: list[MlflowException] = []
        """The next ones, instead of the timeout."""

    def create_run(self, client: MlflowClient, *arguments: Any, **options: Any) -> Any:
        if self.is_free:
            return CREATE_RUN(client, *arguments, **options)
        self.given_up.append(lambda: CREATE_RUN(client, *arguments, **options))
        if self.failures:
            raise self.failures.pop(0)
        raise MlflowException("API request failed: read timed out") from TimeoutError("timed out")

    def execute(self, index: int) -> str:
        return str(self.given_up[index]().info.run_id)


CREATE_RUN = MlflowClient.create_run


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> DelayedCreations:
    delayed = DelayedCreations()

    def create_run(client: MlflowClient, *arguments: Any, **options: Any) -> Any:
        return delayed.create_run(client, *arguments, **options)

    monkeypatch.setattr(MlflowClient, "create_run", create_run)
    return delayed


@pytest.fixture
def now(mirror: Any, database: Database) -> list[float]:
    """The loop's clock, which the test moves: the time is the sum."""
    passed = [0.0]
    mirror.loop = Mirroring(database, mirror.client.tracking_uri, clock=lambda: sum(passed))
    return passed


def fail(mirror: Any, times: int) -> None:
    """After a failure, smaller batches without a creation succeed."""
    for _ in range(times):
        with pytest.raises(MlflowUnavailable):
            mirror.catch_up()


def mirror_at_the_second_try(mirror: Any, delayed: DelayedCreations) -> None:
    """The first one is not answered in time."""
    fail(mirror, times=1)
    delayed.is_free = True
    mirror.catch_up()
    delayed.is_free = False


@pytest.mark.usefixtures("now")
def test_of_runs_that_mlflow_has_created_late_one_is_kept(
    mirror: Any, begin_experiment: Callable[..., Any], delayed: DelayedCreations
) -> None:
    history = begin_experiment()
    fail(mirror, times=2)
    history.completed_trial(0, 0.5)
    parents = {delayed.execute(index) for index in range(2)}
    fail(mirror, times=2)
    trials = {delayed.execute(index) for index in (2, 3)}

    mirror.catch_up()

    runs = mirror.runs(history.name)  # fails where two have the same name
    assert {name: run.info.status for name, run in runs.items()} == {history.name: "RUNNING", "trial 00": "FINISHED"}
    assert runs[history.name].info.run_id in parents
    assert runs["trial 00"].info.run_id in trials


def test_a_run_that_mlflow_creates_after_its_trial_was_mirrored_is_deleted(
    mirror: Any, begin_experiment: Callable[..., Any], delayed: DelayedCreations, now: list[float]
) -> None:
    """The trial's run stays the one whose creation was answered."""
    history = begin_experiment()
    mirror_at_the_second_try(mirror, delayed)
    history.completed_trial(0, 0.5)
    mirror_at_the_second_try(mirror, delayed)
    kept = {name: run.info.run_id for name, run in mirror.runs(history.name).items()}
    for seconds in (30, 270):
        for index in range(2):
            delayed.execute(index)
        now.append(seconds)

        mirror.catch_up()

        assert {name: run.info.run_id for name, run in mirror.runs(history.name).items()} == kept


def test_a_late_run_is_deleted_after_the_creation_was_refused_when_it_was_repeated(
    mirror: Any, begin_experiment: Callable[..., Any], delayed: DelayedCreations, now: list[float]
) -> None:
    history = begin_experiment()
    refusal = RestException({"error_code": "PERMISSION_DENIED", "message": "read only"})
    delayed.failures = [MlflowException("bad gateway"), refusal]
    mirror.catch_up()
    delayed.is_free = True
    now.append(1)
    mirror.catch_up()
    kept = mirror.runs(history.name)[history.name].info.run_id
    delayed.execute(0)
    now.append(30)

    mirror.catch_up()

    assert mirror.runs(history.name)[history.name].info.run_id == kept


def test_a_late_run_stays_if_a_user_has_deleted_the_other(
    mirror: Any, begin_experiment: Callable[..., Any], delayed: DelayedCreations, now: list[float]
) -> None:
    history = begin_experiment()
    mirror_at_the_second_try(mirror, delayed)
    mirror.client.delete_run(mirror.runs(history.name)[history.name].info.run_id)
    late = delayed.execute(0)
    now.append(30)

    mirror.catch_up()

    assert mirror.runs(history.name)[history.name].info.run_id == late


def test_a_late_run_is_deleted_after_another_service_has_mirrored_the_trial(
    mirror: Any, begin_experiment: Callable[..., Any], delayed: DelayedCreations, now: list[float], database: Database
) -> None:
    history = begin_experiment()
    delayed.is_free = True
    mirror.catch_up()
    history.completed_trial(0, 0.5)
    delayed.is_free = False
    fail(mirror, times=1)
    delayed.is_free = True
    Mirroring(database, mirror.client.tracking_uri, clock=lambda: sum(now)).run_once()
    kept = mirror.runs(history.name)["trial 00"].info.run_id
    delayed.execute(0)

    mirror.catch_up()

    assert mirror.runs(history.name)["trial 00"].info.run_id == kept


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "an-hour-later"])
def test_a_creation_that_is_never_answered_is_forgotten(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    delayed: DelayedCreations,
    now: list[float],
    database: Database,
    *,
    is_deleted: bool,
) -> None:
    """And so is the rest of a deleted experiment."""
    history, refused = begin_experiment(), begin_experiment("x-00000000000b", name="refused late")
    mirror.loop._backoff.failed(refused.experiment_id)
    fail(mirror, times=1)
    assert len(delayed.given_up) == len(mirror.loop._unanswered.all()) == 1
    with database.write() as session:
        session.delete(session.get_one(ExperimentRow, refused.experiment_id))
        if is_deleted:
            session.delete(session.get_one(ExperimentRow, history.experiment_id))
        else:
            mirrors.advance(session, history.experiment_id, 0, 1, {})
            now.append(3600)

    mirror.loop.run_once()

    assert mirror.loop._unanswered.all() == []
    assert not mirror.loop._backoff._rests


def test_a_look_for_late_runs_that_mlflow_does_not_answer_is_made_again(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    delayed: DelayedCreations,
    now: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = begin_experiment()
    mirror_at_the_second_try(mirror, delayed)
    kept = mirror.runs(history.name)[history.name].info.run_id
    delayed.execute(0)
    now.append(30)

    def away(*_: Any) -> None:
        raise MlflowUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(TrackingClient, "delete_duplicates", away)
        assert mirror.loop.run_once() == 0

    mirror.catch_up()

    assert mirror.runs(history.name)[history.name].info.run_id == kept


def test_late_runs_are_deleted_in_a_pass_in_which_mlflow_fails_at_another_experiment(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    delayed: DelayedCreations,
    now: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of many experiments on a bad connection fails in nearly each pass."""
    history = begin_experiment("x-00000000000a", name="with a late run")
    mirror_at_the_second_try(mirror, delayed)
    kept = mirror.runs(history.name)[history.name].info.run_id
    delayed.is_free = True
    failing = begin_experiment("x-00000000000b", name="failing")
    mirror.catch_up()
    unreachable = mirror.runs(failing.name)[failing.name].info.run_id
    for one in (history, failing):
        one.trial(0, lr=0.1)
    check_run = TrackingClient.check_run

    def check(client: TrackingClient, run_id: str) -> None:
        if run_id == unreachable:
            raise MlflowUnavailable("away")
        check_run(client, run_id)

    monkeypatch.setattr(TrackingClient, "check_run", check)
    delayed.execute(0)
    now.append(30)
    with pytest.raises(MirrorFailed):
        mirror.loop.run_once()

    assert mirror.runs(history.name)[history.name].info.run_id == kept
