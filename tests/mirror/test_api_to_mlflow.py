"""From the HTTP API to MLflow: the events are the service's own, on SQLite and on PostgreSQL."""

import re
import time
from typing import Any

import pytest
from mlflow import MlflowClient

from service.settings import Settings
from service.stack.ports import free_port
from tests.conftest import changed, running

pytestmark = pytest.mark.slow

CPU = "system/cpu_utilization_percentage"


def test_trials_run_through_the_api_are_in_mlflow(settings: Settings, mlflow_server: Any) -> None:
    client = MlflowClient(tracking_uri=mlflow_server.uri)
    with running(changed(settings, mlflow_uri=mlflow_server.uri, mlflow_ui="http://mlflow.example")) as api:
        name = api.create(limits={"max_trials": 2})["name"]
        for values in ([0.5, 0.75], [0.25]):
            held = api.ask(name)
            assert held is not None
            for value in values:
                held.report(accuracy=value)
            loads = [{"cpu_utilization_percentage": 10.0 * value} for value in values]
            samples = [{"sequence": n, "age_seconds": 20 - 10 * n, "metrics": load} for n, load in enumerate(loads)]
            held.call("heartbeat", body={"system_metrics": samples[:1]})
            held.finish(system_metrics=samples)
        page = until_mirrored(api, client, name)

    found = re.fullmatch(r"http://mlflow\.example/#/experiments/(\d+)/runs\?.*", page)
    assert found is not None
    runs = {run.info.run_name: run for run in client.search_runs([found[1]])}
    assert sorted(runs) == sorted([name, "trial 00", "trial 01"])
    assert [point.value for point in client.get_metric_history(runs["trial 00"].info.run_id, "accuracy")] == [0.5, 0.75]
    cost = costs_in(runs["trial 01"].data.metrics)
    assert runs["trial 01"].data.metrics == {"accuracy": 0.25, CPU: 2.5} | cost
    loads = client.get_metric_history(runs["trial 00"].info.run_id, CPU)
    assert [point.value for point in loads] == [5.0, 7.5]
    assert loads[1].timestamp - loads[0].timestamp == pytest.approx(10_000, abs=5_000)
    assert cost["paceline/worker_seconds"] > 0
    assert "worker-seconds" in runs[name].data.tags["paceline.cost"]
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert runs[name].data.metrics == {"best_accuracy": 0.75}
    assert runs[name].data.tags["paceline.best_trial"] == "0"
    assert runs[name].data.tags["paceline.trials"] == "2 completed"


def test_an_experiment_is_deleted_when_mlflow_has_its_last_events(
    settings: Settings, mlflow_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, importing MLflow takes long.
    monkeypatch.setattr("service.api.experiments.mirror_wait.MAX_POLLS", 1500)
    client = MlflowClient(tracking_uri=mlflow_server.uri)
    with running(changed(settings, mlflow_uri=mlflow_server.uri)) as api:
        name = ended_experiment(api)
        api.call("DELETE", f"/v1/experiments/{name}", 204)
        assert api.create(name=name, limits={"max_trials": 1})["name"] == name

    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert runs["trial 00"].data.metrics["accuracy"] == 0.75


def test_an_experiment_can_be_deleted_while_mlflow_is_away(settings: Settings) -> None:
    with running(changed(settings, mlflow_uri=f"http://127.0.0.1:{free_port()}")) as api:
        name = ended_experiment(api)
        api.call("DELETE", f"/v1/experiments/{name}", 204)
        api.get(f"/v1/experiments/{name}", 404)


def ended_experiment(api: Any) -> str:
    """Return the name of an experiment with one trial."""
    name = str(api.create(limits={"max_trials": 1})["name"])
    held = api.ask(name)
    held.report(accuracy=0.75)
    held.finish()
    return name


def costs_in(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name.startswith("paceline/")}


def until_mirrored(api: Any, client: MlflowClient, name: str) -> str:
    """Return the experiment's URL in MLflow once its last event is mirrored."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        page = api.get(f"/v1/experiments/{name}")["mlflow_url"]
        experiment = client.get_experiment_by_name(name) if page else None
        runs = client.search_runs([experiment.experiment_id], f"attributes.run_name = '{name}'") if experiment else []
        if runs and runs[0].info.status == "FINISHED":
            return str(page)
        time.sleep(0.1)
    raise TimeoutError(f"{name} is not in MLflow: {api.get('/readyz')}")
