"""Which runs in MLflow are Paceline's own, and which of these fit or may be deleted. Pure. When in doubt, keep."""

from collections.abc import Sequence

from mlflow.entities import LifecycleStage, Run

from service.mirror.runs.new_runs import (
    GENERATION_TAG,
    PARENT_TAG,
    RUN_NAME_TAG,
    TRIAL_NUMBER_TAG,
    TRIAL_TAG,
    USER,
    USER_TAG,
    NewRun,
)
from service.mirror.runs.projection import RunKey
from service.mirror.runs.trial_run_update import UNKNOWN

STATUS_TAG = "paceline.status"


def is_own(run: Run, new: NewRun) -> bool:
    """Whether Paceline has created the run as `new`. A user's run may have the tag of a trial, to link it to that."""
    return all(run.data.tags.get(tag) == value for tag, value in (*new.key.items(), *new.identity.items()))


def contradicts(run: Run, new: NewRun) -> bool:
    """Whether a trial's run has other params than `new`, or is of another donor: then it is of a lost generation.

    The database was restored from a backup, and what ran since is run again, differently. Only the experiment's run
    may differ, whose limits and tags change.
    """
    if TRIAL_TAG not in new.key:
        return False
    tags, params = run.data.tags, run.data.params
    other_params = any(
        params.get(name, value) not in {value, *new.earlier_values.get(name, ())} for name, value in new.params.items()
    )
    return other_params or any(tags.get(tag) != value for tag, value in new.tags.items() if tag != PARENT_TAG)


def new_parent(run: Run, new: NewRun) -> dict[str, str]:
    """The tag with the parent run, if MLflow has the run below another one, such as one that was deleted."""
    parent = new.tags.get(PARENT_TAG)
    return {} if parent is None or run.data.tags.get(PARENT_TAG) == parent else {PARENT_TAG: parent}


def fitting(own: Sequence[Run], new: NewRun) -> list[Run]:
    """Paceline's runs that may be used as `new`: deleted ones only if there is no other, so that they stay so.

    What is deleted and was never used is a late run.
    """
    fit = [run for run in own if not contradicts(run, new)]
    return [run for run in fit if _is_active(run)] or [run for run in fit if not is_untouched(run, new)]


def is_to_be_ended(run: Run, new: NewRun) -> bool:
    """Whether the run contradicts `new` and has not been ended for that yet."""
    return _is_active(run) and contradicts(run, new) and run.data.tags.get(STATUS_TAG) != UNKNOWN


def run_key(run: Run) -> RunKey | None:
    """The trial and the generation of a run that Paceline has created; None for any other.

    A user may have edited the generation, so that it is no number.
    """
    tags = run.data.tags
    if tags.get(USER_TAG) != USER or TRIAL_NUMBER_TAG not in tags or TRIAL_TAG not in tags:
        return None
    generation = tags.get(GENERATION_TAG) or "0"
    return RunKey(tags[TRIAL_TAG], int(generation)) if generation.isdecimal() else None


def is_untouched(run: Run, new: NewRun) -> bool:
    """Whether the run is as Paceline creates it: neither Paceline nor a user has written to it."""
    is_empty = run.info.status == "RUNNING" and not run.data.params and not run.data.metrics
    return is_empty and run.data.tags == new.created_tags | {RUN_NAME_TAG: new.name}


def written_to_first(run: Run) -> tuple[bool, str]:
    """The order of choice. Late runs have the same start time, but no params."""
    return not run.data.params, str(run.info.run_id)


def _is_active(run: Run) -> bool:
    return bool(run.info.lifecycle_stage == LifecycleStage.ACTIVE)
