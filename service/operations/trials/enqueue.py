"""Giving configurations to a live experiment: they are tried before anything that the search proposes."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from search.space.space import Params
from service.errors import Conflict, Invalid, WrongState
from service.operations.experiments.termination import check_not_ended
from service.operations.transitions import create_trial
from service.runtime.context import Context
from service.runtime.spec_cache import spec_of
from service.specification.mistakes import readable
from service.specification.models import ExperimentSpec
from service.store.lookup import locked_experiment
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials import trials_enqueued_with


def enqueue(
    context: Context, name_or_id: str, wanted: Sequence[Params], *, as_list: bool, key: str | None
) -> Sequence[TrialRow]:
    """Queued trials, in the order of `wanted`; the same key with the same configurations gives the same trials.

    `as_list` says how the caller wrote them, for the paths of mistakes. Raises NotFound, Conflict for a key used with
    other configurations, WrongState when the experiment is over or has no room, Invalid.
    """
    with context.database.write() as session:
        experiment = locked_experiment(session, name_or_id)
        if key is not None and (earlier := _earlier(session, experiment, wanted, key)):
            return earlier
        spec = spec_of(experiment)
        check_not_ended(experiment, "takes no more trials")
        _check_params(spec, wanted, as_list=as_list)
        _check_room(experiment, spec, len(wanted))
        now = database_now(session)
        trials = [create_trial(session, experiment, dict(params), "enqueue", now, key) for params in wanted]
    context.notify_changed()
    return trials


def _earlier(session: Session, experiment: ExperimentRow, wanted: Sequence[Params], key: str) -> Sequence[TrialRow]:
    earlier = trials_enqueued_with(session, experiment.id, key)
    if earlier and [trial.params for trial in earlier] != list(wanted):
        numbers = ", ".join(str(trial.number) for trial in earlier[:10])
        raise Conflict(f"the Idempotency-Key was used for trials {numbers}, with other configurations")
    return earlier


def _check_params(spec: ExperimentSpec, wanted: Sequence[Params], *, as_list: bool) -> None:
    mistakes = [
        readable(mistake.under(*([index] if as_list else []), "params"))
        for index, params in enumerate(wanted)
        for mistake in spec.space.mistakes_in(params)
    ]
    if mistakes:
        raise Invalid(mistakes)


def _check_room(experiment: ExperimentRow, spec: ExperimentSpec, count: int) -> None:
    limit, there = spec.limits.max_trials, experiment.trial_count
    if there + count > limit:
        raise WrongState(
            f"experiment {experiment.name} has {there} trials and limits.max_trials is {limit}: no room for {count} "
            f"more; raise the limit first: PATCH /v1/experiments/{experiment.name} "
            f'{{"limits": {{"max_trials": {there + count}}}}}',
            experiment_status=experiment.status,
            trial_count=there,
            max_trials=limit,
        )
