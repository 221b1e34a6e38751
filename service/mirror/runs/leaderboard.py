"""The leaderboard: a shared view of MLflow's UI with the trials sorted by objective, with metrics and parameters.

MLflow's default page hides trials below their parent run, and shows neither metrics nor parameters. MLflow stores a
shared view as a tag of the experiment, and a URL with the view's key opens it. A version of MLflow without shared views
opens its default page.
"""

import json

from service.mirror.runs.experiment_metric_names import names_of_metrics
from service.mirror.runs.experiment_param_names import names_of_params
from service.mirror.runs.objectives import best_report_metric, objectives_of
from service.store.tables import ExperimentRow, MirrorRow

VIEW_TAG = "mlflow.sharedViewState.paceline"
MAX_PARAMS = 12


def leaderboard(experiment: ExperimentRow) -> str:
    """Return the state of the view, as MLflow's UI stores it."""
    objectives, metric_names = objectives_of(experiment), names_of_metrics(experiment)
    metrics = [f"metrics.`{metric_names[objective.metric]}`" for objective in objectives]
    space = list(experiment.spec["space"])
    names = names_of_params(experiment)
    params = [f"params.`{names[name]}`" for name in space[:MAX_PARAMS]]
    feasible = ["tags.`paceline.feasible`"] if experiment.spec.get("constraints") else []
    best = best_report_metric(experiment)
    if best is not None:
        metrics.insert(0, f"metrics.`{metric_names[best]}`")
    view = {
        "orderByKey": metrics[0],
        "orderByAsc": not objectives[0].maximize,
        "selectedColumns": ["attributes.`Description`", *metrics, *feasible, *params],
    }
    return json.dumps(view)


def mlflow_url(mirror: MirrorRow | None, ui_address: str | None) -> str | None:
    """Return the URL of an experiment's leaderboard; None before MLflow has the experiment, or without MLflow."""
    if mirror is None or ui_address is None or mirror.mlflow_experiment_id is None:
        return None
    page = f"{ui_address.rstrip('/')}/#/experiments/{mirror.mlflow_experiment_id}/runs"
    return f"{page}?viewStateShareKey={VIEW_TAG.rpartition('.')[2]}&workflowType=machine_learning"
