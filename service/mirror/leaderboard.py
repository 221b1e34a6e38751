"""What people see first in MLflow's UI: the trials, best first, with their objective and their parameters.

MLflow's own first page hides trials below their parent and shows neither metrics nor parameters. A view that somebody
has shared is a tag of the experiment, and an address that names it opens it; where a version of MLflow does not know
such views, the address opens the page as it is.
"""

import json

from service.mirror import mlflow_limits
from service.mirror.objectives import objectives_of
from service.store.tables import ExperimentRow, MirrorRow

VIEW_TAG = "mlflow.sharedViewState.paceline"
MOST_PARAMS = 12


def leaderboard(experiment: ExperimentRow) -> str:
    objectives = objectives_of(experiment)
    metrics = [f"metrics.`{mlflow_limits.name(objective.metric)}`" for objective in objectives]
    params = [f"params.`{mlflow_limits.name(name)}`" for name in list(experiment.spec["space"])[:MOST_PARAMS]]
    feasible = ["tags.`paceline.feasible`"] if experiment.spec.get("constraints") else []
    view = {
        "orderByKey": metrics[0],
        "orderByAsc": not objectives[0].maximize,
        "selectedColumns": ["attributes.`Description`", *metrics, *feasible, *params],
    }
    return json.dumps(view)


def mlflow_url(mirror: MirrorRow | None, ui_address: str | None) -> str | None:
    """Where people see an experiment; None while it is not there, or where there is no MLflow."""
    if mirror is None or ui_address is None or mirror.mlflow_experiment_id is None:
        return None
    page = f"{ui_address.rstrip('/')}/#/experiments/{mirror.mlflow_experiment_id}/runs"
    return f"{page}?viewStateShareKey={VIEW_TAG.rpartition('.')[2]}&workflowType=machine_learning"
