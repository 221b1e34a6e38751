"""What MLflow would refuse, or what one experiment's mirror fails with, stops no mirror."""

from collections.abc import Callable
from typing import Any

import pytest

from service.background.loop import Loop
from service.background.mirroring import MirrorFailed
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MirrorRow

pytestmark = pytest.mark.slow

CHANGED = "experiment.changed"


def test_a_users_tag_with_a_name_for_the_run_names_it(mirror: Any, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment(tags={"mlflow.runName": "my run", "team": "vision"})
    history.completed_trial(0, 0.5)

    mirror.catch_up()

    runs = mirror.runs(history.name)
    assert set(runs) == {"my run", "trial 00"}
    assert runs["my run"].data.tags["team"] == "vision"


def test_a_run_whose_name_is_taken_back_has_the_experiments_name(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database
) -> None:
    history = begin_experiment(tags={"mlflow.runName": "my run"})
    mirror.catch_up()
    for before, after in (("my run", "better"), ("better", None)):
        change_spec(database, history, tags={"mlflow.runName": after} if after else {})
        history.append(CHANGED, {"field": "tags.mlflow.runName", "before": before, "after": after})

        mirror.catch_up()

        assert set(mirror.runs(history.name)) == {after or history.name}


def test_a_long_name_for_the_run_is_cut(mirror: Any, begin_experiment: Callable[..., Any], database: Database) -> None:
    """The column of MLflow's database has 250 characters: PostgreSQL refuses more."""
    history = begin_experiment(tags={"mlflow.runName": "a" * 300})
    mirror.catch_up()
    assert set(mirror.runs(history.name)) == {"a" * 249 + "…"}
    change_spec(database, history, tags={"mlflow.runName": "b" * 300})
    history.append(CHANGED, {"field": "tags.mlflow.runName", "before": "a" * 300, "after": "b" * 300})

    mirror.catch_up()

    assert set(mirror.runs(history.name)) == {"b" * 249 + "…"}


def test_a_limit_that_changes_before_the_parent_run_is_known_does_not_stop_the_mirror(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is killed after it has written the params: MLflow refuses to change them."""
    history = begin_experiment()
    with monkeypatch.context() as patch:
        patch.setattr("service.store.mirrors.begin", killed)
        with pytest.raises(KeyboardInterrupt):
            mirror.loop.run_once()
    change_spec(database, history, limits={"max_trials": 99, "parallelism": 2, "max_seconds": 60})
    history.append(CHANGED, {"field": "limits.max_trials", "before": 24, "after": 99})

    mirror.catch_up()

    assert error_of(database, history) is None
    run = mirror.runs(history.name)[history.name]
    assert (run.data.params["max_trials"], run.data.params["max_seconds"]) == ("24", "60")
    assert run.data.tags["paceline.changed.limits.max_trials"] == "24 -> 99"


def test_an_experiment_whose_mirror_fails_does_not_affect_the_others(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """An event of one lacks what the mirror needs. It is the first in the order."""
    broken, other = begin_experiment("x-00000000000a", name="broken"), begin_experiment("x-00000000000b", name="whole")
    broken.append(CHANGED, {"before": "a secret"})
    other.completed_trial(0, 0.5)

    for _ in range(2):  # the second time, the broken one rests
        with pytest.raises(MirrorFailed, match=r"^the mirror of 1 experiment fails with KeyError; mlflow_error and"):
            mirror.loop.run_once()

    assert mirror.runs("whole")["trial 00"].info.status == "FINISHED"
    assert error_of(database, broken) == "the mirror failed with KeyError; the service's log says more"
    assert caplog.messages == ["experiment x-00000000000a is not mirrored"]
    with database.write() as session:
        session.delete(session.get_one(ExperimentRow, broken.experiment_id))
    assert mirror.loop.run_once() == 0


def test_while_an_experiment_cannot_be_mirrored_the_loop_keeps_its_pace(
    mirror: Any, begin_experiment: Callable[..., Any]
) -> None:
    """Health shows the failure all the time, also while the experiment rests."""
    broken, other = begin_experiment("x-00000000000a", name="broken"), begin_experiment("x-00000000000b", name="whole")
    broken.append(CHANGED, {"before": "a secret"})
    loop = Loop(mirror.loop)
    for number in range(4):
        other.completed_trial(number, 0.5)

        assert loop._run_once() <= mirror.loop.every

        assert not loop.health()["ok"]
        assert "the mirror of 1 experiment fails with KeyError" in loop.health()["error"]


def test_a_change_with_a_field_of_a_later_version_is_mirrored(
    mirror: Any, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment()
    history.append(CHANGED, {"field": "limits.max_trials", "before": 24, "after": 99, "by": "a user"})

    mirror.catch_up()

    assert mirror.runs(history.name)[history.name].data.tags["paceline.changed.limits.max_trials"] == "24 -> 99"


def killed(*_: Any) -> None:
    raise KeyboardInterrupt


def change_spec(database: Database, history: Any, **fields: Any) -> None:
    with database.write() as session:
        experiment = session.get_one(ExperimentRow, history.experiment_id)
        experiment.spec = experiment.spec | fields


def error_of(database: Database, history: Any) -> str | None:
    with database.read() as session:
        return session.get_one(MirrorRow, history.experiment_id).error
