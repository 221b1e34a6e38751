"""The names of an experiment's parameters in MLflow, which has fewer characters for them."""

from service.mirror import mlflow_limits
from service.store.tables import ExperimentRow


def names_of_params(experiment: ExperimentRow) -> dict[str, str]:
    """The names in MLflow of what its trials may have, the same for all of them, also where a space has conditions."""
    return mlflow_limits.names({**(experiment.spec.get("config") or {}), "seed": None, **experiment.spec["space"]})
