"""An experiment's runs in MLflow, read with its own client."""

from dataclasses import dataclass, field, replace

from mlflow import MlflowClient
from mlflow.entities import Run

from service.background.charting import ARTIFACT_FOLDER
from tests.chaos.evidence.snapshot import MlflowRun

EXPERIMENT_TAG = "paceline.experiment_id"
TRIAL_TAG = "paceline.trial_id"


@dataclass
class ExperimentRuns:
    """The runs of one experiment. `experiments` is the number of MLflow experiments that they are in."""

    experiments: int = 0
    parents: list[MlflowRun] = field(default_factory=list)
    children: list[MlflowRun] = field(default_factory=list)

    def of_trial(self, trial: str) -> list[MlflowRun]:
        return [run for run in self.children if run.tags.get(TRIAL_TAG) == trial]

    def foreign(self, trials: set[str]) -> list[MlflowRun]:
        """Return the runs that belong to none of these trials, or to no parent run of this experiment."""
        parents = {run.run_id for run in self.parents}
        return [
            run
            for run in self.children
            if run.tags.get(TRIAL_TAG) not in trials or run.tags.get("mlflow.parentRunId") not in parents
        ]


class MlflowReader:
    def __init__(self, uri: str) -> None:
        self._client = MlflowClient(tracking_uri=uri)

    def of(self, experiment_id: str, name: str) -> ExperimentRuns:
        found = [one for one in self._client.search_experiments() if _is_ours(one.name, name, one.tags, experiment_id)]
        runs = ExperimentRuns(experiments=len(found))
        for one in found:
            for run in self._client.search_runs([one.experiment_id], max_results=5000):
                if "mlflow.parentRunId" not in run.data.tags and TRIAL_TAG not in run.data.tags:
                    runs.parents.append(replace(self._read(run), charts=self._charts(run.info.run_id)))
                else:
                    runs.children.append(self._read(run))
        return runs

    def _charts(self, run_id: str) -> dict[str, int]:
        files = self._client.list_artifacts(run_id, ARTIFACT_FOLDER)
        return {file.path: file.file_size or 0 for file in files}

    def _read(self, run: Run) -> MlflowRun:
        curves = {name: self._curve(run.info.run_id, name) for name in run.data.metrics}
        return MlflowRun(run.info.run_id, run.info.status, dict(run.data.params), dict(run.data.tags), curves)

    def _curve(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        history = self._client.get_metric_history(run_id, metric)
        return sorted((point.step, point.value) for point in history)


def _is_ours(found: str, name: str, tags: dict[str, str], experiment_id: str) -> bool:
    return found == name or tags.get(EXPERIMENT_TAG) == experiment_id
