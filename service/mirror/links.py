"""Addresses in MLflow's UI."""

from service.store.tables import MirrorRow


def mlflow_url(mirror: MirrorRow | None, ui_address: str | None) -> str | None:
    """Where people see an experiment; None while it is not there, or where there is no MLflow."""
    if mirror is None or ui_address is None or mirror.mlflow_experiment_id is None:
        return None
    return f"{ui_address.rstrip('/')}/#/experiments/{mirror.mlflow_experiment_id}"
