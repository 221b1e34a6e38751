"""A user enqueues configurations in a live experiment: they run before the search proposes any further one."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from search.mistakes import Mistake
from search.numbers_in_messages import counted
from search.space.space import Params
from service.domain.end_reasons import EndReason
from service.errors import Conflict, Invalid, WrongState
from service.operations.experiments.experiment_end import check_not_ended, how_to_continue
from service.operations.locked_experiment import lock_named
from service.operations.transitions import create_trial
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.store.experiments import has_ended_search
from service.store.lookup import experiment_named
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.confirmations import confirmations_of
from service.store.trials.param_generations import first_params
from service.store.trials.trials import trials_enqueued_with


def enqueue(
    context: Context, name_or_id: str, configurations: Sequence[Params], *, as_list: bool, key: str | None
) -> Sequence[TrialRow]:
    """Creates one queued trial per configuration, in their order.

    A repeat of a call, with the same Idempotency-Key `key` and the same configurations, returns the same trials.
    `as_list`: the body was a list, so the paths of mistakes have an index. Raises NotFound, Invalid, Conflict for a key
    that was used with other configurations, and WrongState when the experiment has ended or has no room.
    """
    with context.database.read() as session:
        seen = spec_of(experiment_named(session, name_or_id))
    mistakes = _mistakes_in(configurations, seen)  # before the transaction, because many configurations take long
    with context.database.write() as session:
        locked = lock_named(session, name_or_id)
        experiment = locked.experiment
        if key is not None and (earlier := _created_with(session, experiment, configurations, key)):
            return earlier
        spec = spec_of(experiment)
        if spec is not seen:  # the space may have been narrowed meanwhile
            mistakes = _mistakes_in(configurations, spec)
        if mistakes:
            raise Invalid([mistake if as_list else Mistake(mistake.path[1:], mistake.message) for mistake in mistakes])
        check_not_ended(experiment, "takes no more trials")
        _check_searching(session, experiment)
        _check_room(experiment, spec, len(configurations))
        trials = [create_trial(locked, dict(params), "enqueue", source="user", key=key) for params in configurations]
    context.notify_changed()
    return trials


def _created_with(
    session: Session, experiment: ExperimentRow, configurations: Sequence[Params], key: str
) -> Sequence[TrialRow]:
    earlier = trials_enqueued_with(session, experiment.id, key)
    # A trial of a population may have other params by now.
    if earlier and first_params(session, earlier) != list(configurations):
        numbers = ", ".join(str(trial.number) for trial in earlier[:10])
        trials = f"trial{'s' * (len(earlier) > 1)} {numbers}"
        raise Conflict(f"the Idempotency-Key was used for {trials}, with other configurations")
    return earlier


def _mistakes_in(configurations: Sequence[Params], spec: ExperimentSpec) -> list[Mistake]:
    """Their paths begin with the index of the configuration."""
    return [
        mistake.under(index, "params")
        for index, params in enumerate(configurations)
        for mistake in spec.space.mistakes_in(params)
    ]


def _check_searching(session: Session, experiment: ExperimentRow) -> None:
    if has_ended_search(experiment):
        are_confirmed = bool(confirmations_of(session, [experiment.id]))
        winners = "are being confirmed" if are_confirmed else "will be confirmed when its last trials have ended"
        if experiment.end_reason == EndReason.SPACE_EXHAUSTED:
            advice = "every configuration has been tried, so it takes no more trials"
        else:
            advice = how_to_continue(experiment)
        raise WrongState(
            f"the search of experiment {experiment.name} has ended ({experiment.end_reason}) and its winners "
            f"{winners}; {advice}",
            experiment_status=experiment.status,
            end_reason=experiment.end_reason,
        )


def _check_room(experiment: ExperimentRow, spec: ExperimentSpec, count: int) -> None:
    limit, created = spec.limits.max_trials, experiment.trial_count
    if not spec.has_room(created, count):
        kept = spec.kept_for_confirmations
        what = f"limits.max_trials is {limit}{f', of which confirm keeps {kept}' if kept else ''}"
        raise WrongState(
            f"experiment {experiment.name} has {counted(created, 'trial')} and {what}: no room for {count} "
            f"more; raise the limit first: PATCH /v1/experiments/{experiment.name} "
            f'{{"limits": {{"max_trials": {created + count + kept}}}}}',
            experiment_status=experiment.status,
            trial_count=created,
            max_trials=limit,
        )
