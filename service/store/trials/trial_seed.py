"""The seed that a trial's training function gets with `confirm`. Each confirmation gets another one."""

from service.store.tables import ExperimentRow


def first_seed(experiment: ExperimentRow) -> int | None:
    """The seed of the search's trials; None in an experiment without `confirm`, whose trials get none."""
    return experiment.spec["config"].get("seed", 0) if experiment.spec.get("confirm") else None
