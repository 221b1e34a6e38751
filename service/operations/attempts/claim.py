"""Claims of agents, over all experiments, and of callers that run a trial of one experiment themselves."""

import secrets
from collections.abc import Iterator
from contextlib import suppress

from service.domain.attempt_holders import ASK_HOLDER
from service.domain.group_fit import fits_now
from service.domain.statuses import LIVE_EXPERIMENT
from service.errors import WrongState
from service.operations.attempts.assignment import AttemptEnded, Claimant, earlier_answer, id_from_caller
from service.operations.attempts.capacity import COUNTED, startable
from service.operations.attempts.next_trial import ProposalFailed, assign, propose_ahead
from service.runtime.caches.experiment_caches import readable, spec_of
from service.runtime.context import Context
from service.store.experiments import experiments_with, startable_experiment_ids
from service.store.lookup import experiment_named
from service.store.trials.trials import counts_of_all
from trainer.process_log.context import log_context
from trainer.wire import Assignment, Claim, Kind, Node


def claim(context: Context, agent: str, message: Claim) -> Assignment | None:
    """Look once for a trial that fits the agent's free resources. The same request gets the same answer."""
    if message.storage_error is not None:
        return None  # a trial would train in vain
    claimant = Claimant(agent, id_from_caller(message.request_id), yields_to_slots=True)
    with context.database.read() as session:
        earlier = earlier_answer(context, session, claimant)
    if earlier is not None:
        return earlier if isinstance(earlier, Assignment) else None
    for experiment_id in _candidates(context, message.nodes):
        # A failed search ends its own experiment only.
        with suppress(ProposalFailed):
            assignment = assign(context, experiment_id, claimant)
            if assignment is not None:
                propose_ahead(context, experiment_id)
                context.notify_changed()
                _bind_to_log(assignment)
                return assignment
    return None


def ask(context: Context, name_or_id: str, request_id: str | None) -> Assignment | None:
    """Return a trial of one experiment for a caller that runs it without an agent.

    Raises NotFound, and WrongState for a finished experiment, for a key whose trial has ended, and for a failed search.
    """
    with context.database.read() as session:
        experiment = experiment_named(session, name_or_id)
        if experiment.status not in LIVE_EXPERIMENT:
            raise WrongState(
                f"experiment {experiment.name} is {experiment.status}; only running experiments give trials",
                experiment_status=experiment.status,
            )
        experiment_id = experiment.id
        own_id = id_from_caller(request_id) if request_id else secrets.token_hex(16)
        claimant = Claimant(f"{ASK_HOLDER}{experiment_id}", own_id)
        earlier = earlier_answer(context, session, claimant) if request_id else None
    if isinstance(earlier, AttemptEnded):
        raise WrongState(
            "the attempt that was given for this Idempotency-Key has ended, or its lease is not known any more; ask "
            "with a new key"
        )
    try:
        assignment = assign(context, experiment_id, claimant, earlier)
    except ProposalFailed as error:
        raise WrongState(str(error)) from error
    if assignment is not None and earlier is None:
        propose_ahead(context, experiment_id)
    context.notify_changed()
    if assignment is not None:
        _bind_to_log(assignment)
    return assignment


def _bind_to_log(given: Assignment) -> None:
    log_context.add(experiment=given.experiment_id, trial=given.trial, attempt=given.attempt)


def _candidates(context: Context, nodes: list[Node]) -> Iterator[str]:
    """Yield the experiments that may start a trial which fits on the nodes, the next in line first."""
    with context.database.read() as session:
        pages = startable_experiment_ids(session)
    for page in pages:
        with context.database.read() as session:
            counts = counts_of_all(session, page, COUNTED)
            rows = [row for row in readable(experiments_with(session, page)) if startable(row, counts[row.id])]
        for row in rows:
            trainer = spec_of(row).trainer
            if trainer.kind is not Kind.EXTERNAL and fits_now(trainer.group, nodes):
                yield row.id
