"""The names of an experiment's metrics in MLflow."""

from service.mirror import mlflow_names
from service.mirror.runs.objectives import best_report_metric
from service.store.tables import ExperimentRow


def names_of_metrics(experiment: ExperimentRow) -> dict[str, str]:
    """The names in MLflow of the metrics that the spec names, and of those that the mirror computes of them.

    They do not depend on what a trial reports beside them: the leaderboard, and MLflow's primary metric, refer to them.
    """
    objectives = [one["metric"] for one in experiment.spec["objectives"]]
    constraints = [one["metric"] for one in experiment.spec.get("constraints") or []]
    names = mlflow_names.names(list(dict.fromkeys([*objectives, *constraints])))
    best_report = best_report_metric(experiment)
    computed = [*([best_report] if best_report else []), *(f"best_{metric}" for metric in objectives)]
    return names | mlflow_names.names(computed, names)
