"""One run stays for each trial, whatever answers a search, and whenever the service is killed."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import requests
from mlflow import MlflowClient
from mlflow.entities import ViewType

from service.background.mirroring import Mirroring
from service.mirror.mlflow_errors import MlflowUnavailable
from service.store.sql.database import Database
from tests.mirror.bad_connection import BadConnection, Call, answer, timeout
from tests.mirror.mirrored_runs import everything, forget

pytestmark = pytest.mark.slow
CREATE_RUN = MlflowClient.create_run


@pytest.fixture
def begin_service(mirror: Any, database: Database) -> Callable[[], list[float]]:
    """Return a function that starts the service anew. It returns the service's clock: the time is the sum."""

    def begin() -> list[float]:
        passed = [0.0]
        mirror.loop = Mirroring(database, mirror.client.tracking_uri, clock=lambda: sum(passed))
        return passed

    return begin


def empty_searches(call: Call) -> requests.Response | None:
    """As MLflow answers a search without a result, too."""
    return answer(200, "OK", "{}") if call.path == "runs/search" else None


def all_runs(mirror: Any, history: Any) -> list[str]:
    """The names, also of deleted runs."""
    experiment = mirror.client.get_experiment_by_name(history.name)
    found = mirror.client.search_runs([experiment.experiment_id], run_view_type=ViewType.ALL)
    return sorted(run.info.run_name for run in found)


@pytest.mark.parametrize("answered", [1, 2, 3], ids=lambda count: f"{count} searches")
def test_a_run_that_another_program_does_not_find_is_used_nevertheless(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, connection: BadConnection, answered: int
) -> None:
    """The other program answers some searches, and MLflow all other calls."""
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    mirror.catch_up()
    before = everything(mirror, history)
    forget(database, history)
    left = [None] * answered

    def empty_answers(call: Call) -> requests.Response | None:
        foreign = empty_searches(call)
        return foreign if foreign is not None and left and left.pop() is None else None

    connection.foreign_answer = empty_answers

    mirror.catch_up()

    assert everything(mirror, history) == before


def test_while_another_program_answers_searches_one_run_is_created(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection
) -> None:
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    connection.foreign_answer = empty_searches
    for _ in range(3):
        with pytest.raises(MlflowUnavailable, match="is PACELINE_MLFLOW_URI right, or is a proxy in between"):
            mirror.loop.run_once()
    connection.foreign_answer = lambda _: None

    mirror.catch_up()

    assert all_runs(mirror, history) == [history.name, "trial 00"]


def lost_run(call: Call) -> requests.Response | None:
    """As MLflow answers whose database then fails over to one without the run."""
    body = json.dumps({"run": {"info": {"run_id": "ab" * 16}}})
    return answer(200, "OK", body) if call.path == "runs/create" else None


def refused_search(call: Call) -> requests.Response | None:
    """Refused is what looks for the run by its id."""
    body = json.dumps({"error_code": "PERMISSION_DENIED", "message": "no"})
    return answer(403, "Forbidden", body) if "attributes.run_id" in str(call.body) else None


@pytest.mark.parametrize("afterwards", [lambda _: None, refused_search], ids=["not found", "refused"])
def test_a_run_that_mlflow_has_lost_is_created_again(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    connection: BadConnection,
    afterwards: Callable[[Call], requests.Response | None],
) -> None:
    """The search after its creation takes too long."""
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    connection.foreign_answer = lost_run
    connection.failure = lambda call: timeout() if call.path == "runs/search" and created(connection) else None
    with pytest.raises(MlflowUnavailable, match="runs/search failed"):
        mirror.loop.run_once()
    connection.foreign_answer, connection.failure = afterwards, lambda _: None

    mirror.catch_up()

    assert all_runs(mirror, history) == [history.name, "trial 00"]


def created(connection: BadConnection) -> bool:
    return "runs/create" in connection.calls


def test_a_run_that_a_user_has_deleted_stays_so_although_another_program_does_not_find_it(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, connection: BadConnection
) -> None:
    history = begin_experiment()
    history.completed_trial(0, 0.5)
    mirror.catch_up()
    mirror.client.delete_run(mirror.runs(history.name)["trial 00"].info.run_id)
    forget(database, history)
    searches = [0]

    def second(call: Call) -> requests.Response | None:
        if "paceline.trial_id` = '" not in str(call.body):
            return None
        searches[0] += 1
        return empty_searches(call) if searches[0] == 1 else None

    connection.foreign_answer = second

    mirror.catch_up()

    assert set(mirror.runs(history.name)) == {history.name}


@pytest.fixture
def killed_while_creating(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """The service is killed while it creates its first run and then its second one, which MLflow creates later."""
    late: list[Callable[[], Any]] = []

    def create_run(client: MlflowClient, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(MlflowClient, "create_run", CREATE_RUN)
        late.append(lambda: CREATE_RUN(client, *arguments, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(MlflowClient, "create_run", create_run)
    return late


@pytest.mark.parametrize("seconds", [30, 300])
def test_a_run_that_a_killed_service_has_created_late_is_deleted(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    begin_service: Callable[[], list[float]],
    killed_while_creating: list[Callable[[], Any]],
    seconds: float,
) -> None:
    """The parent run."""
    history = begin_experiment()
    begin_service()
    with pytest.raises(KeyboardInterrupt):
        mirror.loop.run_once()
    now = begin_service()
    history.completed_trial(0, 0.5)
    mirror.catch_up()
    before = everything(mirror, history)
    now.append(seconds - 1)
    mirror.catch_up()
    killed_while_creating[0]()
    now.append(1)

    mirror.catch_up()

    assert everything(mirror, history) == before


@pytest.mark.parametrize("restarts", [True, False], ids=["after-the-start", "after-the-end"])
def test_a_trials_run_that_a_killed_service_has_created_late_is_deleted(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    begin_service: Callable[[], list[float]],
    request: pytest.FixtureRequest,
    *,
    restarts: bool,
) -> None:
    """The service is started again; or another one, which was started before, goes on."""
    history = begin_experiment()
    now, survivor = begin_service(), mirror.loop
    mirror.catch_up()
    history.completed_trial(0, 0.5)
    late = request.getfixturevalue("killed_while_creating")
    begin_service()
    with pytest.raises(KeyboardInterrupt):
        mirror.loop.run_once()
    mirror.loop = survivor
    if restarts:
        now = begin_service()
    else:
        history.finish("completed", "max_trials")
    mirror.catch_up()
    before = everything(mirror, history)
    late[0]()
    now.append(300)

    mirror.catch_up()

    assert everything(mirror, history) == before


def test_a_users_run_stays_when_duplicates_are_deleted(
    mirror: Any, begin_experiment: Callable[..., Any], begin_service: Callable[[], list[float]]
) -> None:
    """It is RUNNING, and has the tag of a trial."""
    history = begin_experiment()
    trial = history.completed_trial(0, 0.5)
    now = begin_service()
    history.finish("completed", "max_trials")
    mirror.catch_up()
    experiment = mirror.client.get_experiment_by_name(history.name).experiment_id
    mirror.client.create_run(experiment, tags={"paceline.trial_id": trial}, run_name="mine")
    now.append(300)

    mirror.catch_up()

    assert set(mirror.runs(history.name)) == {history.name, "trial 00", "mine"}
