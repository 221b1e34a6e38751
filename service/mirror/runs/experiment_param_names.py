"""The names of an experiment's parameters in MLflow."""

from collections.abc import Collection

from service.mirror import mlflow_names
from service.store.tables import ExperimentRow


def names_of_params(experiment: ExperimentRow, params: Collection[str] = ()) -> dict[str, str]:
    """The names in MLflow of what its trials may have, the same for all of them, also where a space has conditions.

    `params` are those of a trial: it may have others, from before its experiment was changed.
    """
    return mlflow_names.names({*(experiment.spec.get("config") or {}), "seed", *experiment.spec["space"], *params})
