"""New MLflow experiments and runs: their names, and the tags and parameters that they get when created. Pure."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.mirror import mlflow_limits, mlflow_names
from service.mirror.runs import descriptions
from service.mirror.runs.experiment_metric_names import names_of_metrics
from service.mirror.runs.experiment_param_names import names_of_params
from service.mirror.runs.leaderboard import VIEW_TAG, leaderboard
from service.store.tables import ExperimentRow, GenerationRow, TrialRow

EXPERIMENT_TAG = "paceline.experiment_id"
TRIAL_TAG = "paceline.trial_id"
GENERATION_TAG = "paceline.generation"
TRIAL_NUMBER_TAG = "paceline.trial"
USER_TAG, USER = "mlflow.user", "paceline"
PARENT_TAG = "mlflow.parentRunId"
RUN_NAME_TAG = "mlflow.runName"
MIN_DIGITS = 2
DIGITS_WITHOUT_LIMIT = 5
"""Of the numbers of an experiment's trials with `max_trials: null`."""


@dataclass(frozen=True)
class NewRun:
    """`key` are the tags by which MLflow is searched. A None means that the run does not have the tag.

    `identity` are the tags that never change: a run without one of them is not Paceline's. `earlier_values` are the
    values that earlier versions may have written for a param: where several names are one in MLflow, the values of all.
    """

    name: str
    key: Mapping[str, str | None]
    identity: Mapping[str, str]
    tags: dict[str, str]
    params: dict[str, str]
    earlier_values: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def fixed_tags(self) -> frozenset[str]:
        """Names of tags by which the mirror finds the run, and by which it knows that the run is its own."""
        return frozenset([*self.key, *self.identity])

    @property
    def created_tags(self) -> dict[str, str]:
        return self.tags | {tag: value for tag, value in self.key.items() if value is not None}


def experiment_tags(experiment: ExperimentRow) -> dict[str, str]:
    """Return the tags of MLflow's experiment, with the kind and the primary metric that its UI would ask for."""
    first = experiment.spec["objectives"][0]
    return mlflow_limits.texts(
        {
            EXPERIMENT_TAG: experiment.id,
            "mlflow.experimentKind": "custom_model_development",
            "mlflow.experiment.primaryMetric.name": names_of_metrics(experiment)[first["metric"]],
            "mlflow.experiment.primaryMetric.greaterIsBetter": first.get("direction") == "maximize",
            VIEW_TAG: leaderboard(experiment),
            "mlflow.note.content": f"{descriptions.objective(experiment)} · Paceline experiment `{experiment.id}`",
        }
    )


def parent_run_name(experiment: ExperimentRow) -> str:
    """A user's tag `mlflow.runName` names the run: MLflow refuses a run whose name is not that of the tag."""
    name = (experiment.spec.get("tags") or {}).get(RUN_NAME_TAG) or experiment.name
    return mlflow_limits.text(name, mlflow_limits.RUN_NAME_LENGTH)


def experiment_run(experiment: ExperimentRow) -> NewRun:
    spec = experiment.spec
    trainer = spec.get("trainer") or {}
    tags = {
        **(spec.get("tags") or {}),
        **_source(experiment),
        EXPERIMENT_TAG: experiment.id,
        "paceline.spec": descriptions.spec_yaml(experiment),
        "paceline.package": trainer.get("package"),
        "paceline.environment": trainer.get("env") or None,
        RUN_NAME_TAG: None,
    }
    return NewRun(
        parent_run_name(experiment),
        {EXPERIMENT_TAG: experiment.id},
        mlflow_limits.texts(_source(experiment)),
        mlflow_limits.texts(tags),
        mlflow_limits.texts(_experiment_params(spec), mlflow_limits.PARAM_LENGTH),
    )


def trial_run(
    experiment: ExperimentRow, trial: TrialRow, parent_run_id: str, generation: GenerationRow | None = None
) -> NewRun:
    """Return the run of a trial, or of one of its generations. The first generation's looks like a trial's only run."""
    later = generation if generation is not None and generation.number else None
    number = str(later.number) if later else None
    identity = {
        **_source(experiment),
        TRIAL_TAG: trial.id,
        TRIAL_NUMBER_TAG: trial.number,
        "paceline.origin": trial.origin,
        "paceline.source": trial.source,
        "paceline.confirms": trial.confirms,
    }
    inherited = {GENERATION_TAG: number, **_inheritance(later)} if later else {}
    seed = {} if trial.seed is None else {"seed": trial.seed}
    params = {**(experiment.spec.get("config") or {}), **seed, **(generation or trial).params}
    names = names_of_params(experiment, params)
    return NewRun(
        f"trial {trial.number:0{_digits(experiment)}d}" + (f", generation {number}" if later else ""),
        {TRIAL_TAG: trial.id, GENERATION_TAG: number},
        mlflow_limits.texts(identity),
        mlflow_limits.texts({**identity, **inherited, PARENT_TAG: parent_run_id}),
        mlflow_limits.texts(params, mlflow_limits.PARAM_LENGTH, names),
        _values_by_plain_name(params),
    )


def _values_by_plain_name(params: Mapping[str, Any]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for name, value in params.items():
        values.setdefault(mlflow_names.name(name), set()).add(mlflow_limits.text(value, mlflow_limits.PARAM_LENGTH))
    return values


def _inheritance(generation: GenerationRow) -> dict[str, Any]:
    return {
        "paceline.donor": generation.donor,
        "paceline.milestone": generation.milestone,
        "paceline.resumed_from": generation.resume_uri,
        "paceline.resumed_step": generation.resume_step,
    }


def _experiment_params(spec: Mapping[str, Any]) -> dict[str, Any]:
    search, stopping = spec.get("search") or {}, spec.get("early_stopping") or {}
    bounds, scaling = spec.get("limits") or {}, (spec.get("trainer") or {}).get("scaling") or {}
    return {
        "objective": ", ".join(f"{one.get('direction', 'minimize')} {one['metric']}" for one in spec["objectives"]),
        "constraints": ", ".join(_bounds(one) for one in spec.get("constraints") or []) or None,
        "sampler": search.get("sampler"),
        "seed": search.get("seed"),
        "early_stopping": stopping.get("rule"),
        "max_trials": bounds.get("max_trials"),
        "parallelism": bounds.get("parallelism"),
        "max_seconds": bounds.get("max_seconds"),
        "max_gpu_hours": bounds.get("max_gpu_hours"),
        "num_workers": descriptions.num_workers(scaling),
        "use_gpu": scaling.get("use_gpu"),
    }


def _bounds(constraint: Mapping[str, Any]) -> str:
    """`1 <= latency_ms <= 20`"""
    least = "" if constraint.get("min") is None else f"{constraint['min']:g} <= "
    most = "" if constraint.get("max") is None else f" <= {constraint['max']:g}"
    return f"{least}{constraint['metric']}{most}"


def _source(experiment: ExperimentRow) -> dict[str, Any]:
    """Return the tags of MLflow's columns Source and User."""
    trainer = experiment.spec.get("trainer") or {}
    source = trainer.get("entrypoint") or shlex.join(trainer.get("command") or ())
    return {
        "mlflow.source.name": source or "paceline",
        "mlflow.source.type": "JOB",
        USER_TAG: USER,
    }


def _digits(experiment: ExperimentRow) -> int:
    """Return the number of digits of the largest trial number, so that names sort as numbers do."""
    most = (experiment.spec.get("limits") or {}).get("max_trials", 0)
    if most is None:
        return DIGITS_WITHOUT_LIMIT
    return max(MIN_DIGITS, len(str(max(most - 1, 0))))
