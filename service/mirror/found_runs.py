"""Which of the runs that MLflow has are Paceline's own, and which of these may be deleted. Pure. When in doubt, keep."""

from mlflow.entities import Run

from service.mirror.new_runs import RUN_NAME_TAG, NewRun


def is_own(run: Run, new: NewRun) -> bool:
    """Whether Paceline has created the run as `new`. A user's run may have the tag of a trial, to link it to that."""
    return all(run.data.tags.get(tag) == value for tag, value in (*new.key.items(), *new.identity.items()))


def is_untouched(run: Run, new: NewRun) -> bool:
    """Whether the run is as Paceline creates it: neither Paceline nor a user has written to it."""
    is_empty = run.info.status == "RUNNING" and not run.data.params and not run.data.metrics
    return is_empty and run.data.tags == new.created_tags | {RUN_NAME_TAG: new.name}


def written_to_first(run: Run) -> tuple[bool, str]:
    """The order of choice. Late runs have the same start time, but no params."""
    return not run.data.params, str(run.info.run_id)
