"""Claims of agents, over all experiments, and of callers that run a trial of one experiment themselves."""

import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

from service.domain.attempt_holders import ASK_HOLDER
from service.domain.fits_beside import fits_beside
from service.domain.group_fit import could_fit, fits_now
from service.domain.statuses import LIVE_EXPERIMENT
from service.errors import WrongState
from service.operations.attempts.scheduling.assignment import AttemptEnded, Claimant, earlier_answer, id_from_caller
from service.operations.attempts.scheduling.experiment_line import Contender, Line, contenders, read_line
from service.operations.attempts.scheduling.next_trial import ProposalFailed, assign, propose_ahead
from service.operations.attempts.scheduling.reservations import Cluster, Reservations, clusters_of
from service.runtime.context import Context
from service.runtime.proposals import ProposalPending
from service.store.agents import works_under
from service.store.lookup import experiment_named
from service.store.sql.database import is_database_down, is_locked
from trainer.process_log.context import log_context
from trainer.wire import Assignment, Claim, Reservation, reserve

logger = logging.getLogger(__name__)

MAX_PENDING_SECONDS = 60.0
"""For so long, what the next trial of an experiment needs is kept from those of a lower priority while its proposal is
made. A sampler of a package may never return."""


@dataclass(frozen=True)
class AgentLeft:
    """The agent that has sent the claim would run nothing: it has released or lost its name, or has hung up."""


def claim(context: Context, agent: str, message: Claim) -> Assignment | AgentLeft | None:
    """Look once for a trial that fits the agent's free resources: None without one. A repeat gets the same answer.

    While another call makes an experiment's proposal, those of a lower priority get only what is free beside its trial.
    """
    claimant = Claimant(agent, id_from_caller(message.request_id), serves_all=True)
    with context.database.read() as session:
        if message.instance is not None and not works_under(session, agent, message.instance):
            return AgentLeft()
        if message.storage_error is not None:
            return None  # a trial would train in vain
        earlier = earlier_answer(context, session, claimant)
        if earlier is not None:
            return earlier if isinstance(earlier, Assignment) else None
        line = read_line(session)
    _forget_passed_over(context, line)
    kept: list[tuple[int, Reservation]] = []
    for one in _candidates(context, line, agent, message):
        ahead = [reservation for priority, reservation in kept if priority > one.rank.priority]
        if not all(fits_beside(one.group, message.nodes, reservation) for reservation in ahead):
            continue
        try:
            assignment = _assign_or_pass_over(context, one.experiment.id, claimant)
        except ProposalPending as pending:
            reservation = reserve(one.group, message.nodes)
            if pending.seconds < MAX_PENDING_SECONDS and reservation is not None:
                kept.append((one.rank.priority, reservation))
            continue
        if assignment is not None:
            return _given(context, assignment)
    return None


def _assign_or_pass_over(context: Context, experiment_id: str, claimant: Claimant) -> Assignment | None:
    """An experiment that is locked or fails does not keep the claim from those behind it."""
    try:
        assignment = assign(context, experiment_id, claimant)
    except ProposalPending:
        raise
    except ProposalFailed:
        return None  # the experiment ends with the reason
    except Exception as error:
        if is_database_down(error):
            raise
        _log_passed_over(context, experiment_id, error)
        return None
    context.passed_over.pop(experiment_id, None)
    return assignment


def _forget_passed_over(context: Context, line: Line) -> None:
    """Forget those that start no more trials, such as deleted ones."""
    if context.passed_over:
        for experiment_id in set(context.passed_over) - line.experiment_ids:
            context.passed_over.pop(experiment_id, None)


def _log_passed_over(context: Context, experiment_id: str, error: Exception) -> None:
    """Once, until the experiment gives a trial again or fails in another way: claims come every second."""
    cause = (error.orig if isinstance(error, DBAPIError) else None) or error
    if context.passed_over.get(experiment_id) is type(cause):
        return
    context.passed_over[experiment_id] = type(cause)
    if is_locked(error):
        logger.info("claims skip experiment %s: another transaction has locked it", experiment_id)
    else:
        logger.error("claims skip experiment %s because of this error:", experiment_id, exc_info=error)


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
    if earlier is not None:
        _bind_to_log(earlier)
        return earlier
    try:
        assignment = assign(context, experiment_id, claimant)
    except ProposalPending:
        return None
    except ProposalFailed as error:
        raise WrongState(str(error)) from error
    return None if assignment is None else _given(context, assignment)


def _given(context: Context, assignment: Assignment) -> Assignment:
    """Return a new assignment, after what follows from it."""
    propose_ahead(context, assignment.experiment_id)
    context.notify_changed()
    _bind_to_log(assignment)
    return assignment


def _bind_to_log(assignment: Assignment) -> None:
    log_context.add(experiment=assignment.experiment_id, trial=assignment.trial, attempt=assignment.attempt)


def _candidates(context: Context, line: Line, agent: str, message: Claim) -> Iterator[Contender]:
    """Yield the experiments that may start a trial which fits on the agent's nodes, the next in line first.

    What is kept for one that does not fit yet is not offered to those behind it.
    """
    reservations = Reservations(lambda: _clusters(context, line, agent, message.running))
    for page in line.pages:
        with context.database.read() as session:
            found = contenders(context, session, line, page)
        for one in found:
            if not fits_now(one.group, message.nodes):
                if could_fit(one.group, message.nodes):  # else nothing is kept for it on this cluster
                    reservations.pass_over(one)
            elif not reservations.blocking(agent, one):
                yield one


def _clusters(context: Context, line: Line, agent: str, running: list[str]) -> dict[str, Cluster]:
    with context.database.read() as session:
        return clusters_of(session, line, agent, running)
