"""MLflow's experiments, found by name, and created if there is none."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from mlflow.entities import LifecycleStage

from service.mirror.mlflow_errors import MlflowRefused
from service.mirror.mlflow_limits import EXPERIMENT_NAME_LENGTH
from service.mirror.runs.new_runs import EXPERIMENT_TAG, experiment_tags
from service.mirror.tracking_server.call_retries import find_or_create, retried
from service.mirror.tracking_server.error_translation import TrackingCalls
from service.store.tables import ExperimentRow


class NamedExperiment(NamedTuple):
    """MLflow's experiment of a name. `is_usable`: it is Paceline's, and not deleted."""

    mlflow_id: str
    is_usable: bool


class ExperimentLookup(TrackingCalls):
    """`ensure_experiment` is idempotent."""

    def ensure_experiment(self, experiment: ExperimentRow) -> str:
        """Return the id of MLflow's experiment, creating it if needed.

        When the name belongs to another experiment or to a deleted one, the name gets Paceline's id as a suffix.
        """
        tags = experiment_tags(experiment)
        suffix = f" ({experiment.id})"
        plain = experiment.name[: EXPERIMENT_NAME_LENGTH - len(suffix)]
        with self._translated_errors():
            for name in (plain, plain + suffix):
                find = partial(self._find_experiment, name, experiment.id)
                ensured, _ = find_or_create(find, partial(self._create_experiment, name, tags))
                if ensured.is_usable:
                    return ensured.mlflow_id
        raise MlflowRefused(
            f"the names {plain!r} and {plain + suffix!r} are taken in MLflow. "
            "A deleted MLflow experiment keeps its name until `mlflow gc` removes it"
        )

    def _find_experiment(self, name: str, experiment_id: str) -> NamedExperiment | None:
        found = retried(self._client.get_experiment_by_name, name)
        if found is None:
            return None
        is_own = found.tags.get(EXPERIMENT_TAG) == experiment_id
        return NamedExperiment(self._id(found.experiment_id), is_own and found.lifecycle_stage == LifecycleStage.ACTIVE)

    def _create_experiment(self, name: str, tags: Mapping[str, str]) -> NamedExperiment:
        return NamedExperiment(self._id(self._client.create_experiment(name, tags=tags)), is_usable=True)
