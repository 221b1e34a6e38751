"""Assigns a trial of an experiment to a claimant: a queued trial, or a new one that the search proposes.

A proposal is computed outside of a transaction. The transaction that uses it checks again what may have changed.
"""

import logging
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from search.plugins import storable
from search.problem import SpaceExhausted
from search.samplers import LibraryMissing
from service.domain.end_reasons import EndReason
from service.domain.statuses import TrialStatus
from service.operations.attempts.scheduling.assignment import AttemptEnded, Claimant, build_assignment, earlier_answer
from service.operations.attempts.scheduling.experiment_line import read_line
from service.operations.attempts.scheduling.startable_trials import (
    COUNTED,
    Startable,
    is_left_to_slots,
    startable_trials,
)
from service.operations.experiments.experiment_end import advance_experiment, begin_ending
from service.operations.experiments.sampler_choice import announce_other_sampler
from service.operations.locked_experiment import LockedExperiment, try_to_lock
from service.operations.transitions import create_trial, move_trial
from service.runtime.caches.cached_study import Proposal, ProposalTarget
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.runtime.lease_tokens import IssuedLease
from service.store.sql.database import BRIEF_LOCK_SECONDS, LOCK_SECONDS, wait_little_for_locks
from service.store.sql.process_caches import cache_epoch
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from service.store.trials.resume_point import resume_point
from service.store.trials.trials import any_changed_after, counts_by_status, next_queued
from trainer.process_log.context import log_context
from trainer.traces import tracing
from trainer.wire import Assignment

logger = logging.getLogger(__name__)

MAX_PROPOSALS = 20
"""The most proposals computed for one claim, if other services take the trial's number meanwhile."""


@dataclass(frozen=True)
class NothingToRun:
    """There is no trial for this claimant now."""


@dataclass(frozen=True)
class NeedsProposal:
    """A new trial may start. Call again with a proposal for `target`."""

    target: ProposalTarget


AssignResult = Assignment | AttemptEnded | NothingToRun | NeedsProposal


class ProposalFailed(Exception):
    """The search cannot propose for an experiment; the experiment ends with the reason."""


def assign(context: Context, experiment_id: str, claimant: Claimant) -> Assignment | None:
    """Return an assignment, or None if the experiment has nothing to run now. Raises as `assign_after`."""
    _look_before_lock(context, experiment_id, claimant)
    newest = context.proposals.newest(experiment_id)
    outcome = _assign_in_own_transaction(context, experiment_id, claimant, newest)
    return assign_after(context, experiment_id, claimant, outcome)


def _look_before_lock(context: Context, experiment_id: str, claimant: Claimant) -> None:
    """Raise ProposalPending if that is all that a caller would get. Claims that wait come every second.

    They would keep reports and heartbeats from the lock, while no trial may start without the proposal.
    """
    pending = context.proposals.pending(experiment_id)
    if pending is None:
        return
    with context.database.read() as session:
        experiment = session.get(ExperimentRow, experiment_id)
        if experiment is None or _startable(context, session, experiment, claimant) != "any":
            return
        if next_queued(session, experiment_id) is None:
            raise pending


def assign_after(context: Context, experiment_id: str, claimant: Claimant, outcome: AssignResult) -> Assignment | None:
    """As `assign`, after a transaction in which `try_assign` had this outcome.

    Raises ProposalFailed, and ProposalPending while another call makes a proposal that takes long: the threads are for
    all experiments.
    """
    if isinstance(outcome, NeedsProposal):
        with context.proposals.turn(experiment_id) as has_waited:
            if has_waited:
                newest = context.proposals.newest(experiment_id)
                outcome = _assign_in_own_transaction(context, experiment_id, claimant, newest)
            for _ in range(MAX_PROPOSALS):
                if not isinstance(outcome, NeedsProposal):
                    break
                proposal = _propose(context, experiment_id, outcome.target.number)
                # Even without a proposal: there may be queued trials now.
                outcome = _assign_in_own_transaction(context, experiment_id, claimant, proposal)
    return outcome if isinstance(outcome, Assignment) else None


def try_assign(
    context: Context, locked: LockedExperiment, claimant: Claimant, offered: Proposal | None = None
) -> AssignResult:
    """Start an attempt in this transaction: of a queued trial, or of a new one with the offered proposal."""
    session, experiment = locked.session, locked.experiment
    allowed = _startable(context, session, experiment, claimant)
    if allowed is None:
        return NothingToRun()
    trial = next_queued(session, experiment.id)
    if trial is None and allowed == "queued":
        return NothingToRun()
    if trial is None:
        epoch = cache_epoch(session)
        target = ProposalTarget(experiment.trial_count, experiment.spec_changed_at_event, epoch)
        proposal = _usable(session, experiment, target, offered)
        if proposal is None:
            return NeedsProposal(target)
        announce_other_sampler(locked)
        trial = create_trial(
            locked,
            dict(proposal.params),
            "search",
            source=proposal.source,
            estimate=proposal.estimate,
            warm_start=proposal.warm_start.to_json(),
        )
    lease = context.lease_tokens.issue()
    attempt = _start_attempt(context, locked, trial, claimant, lease)
    return build_assignment(context, session, experiment, trial, attempt, lease.token)


def _startable(context: Context, session: Session, experiment: ExperimentRow, claimant: Claimant) -> Startable | None:
    counts = counts_by_status(session, experiment.id, COUNTED)
    allowed = startable_trials(experiment, counts)
    is_left = allowed is not None and claimant.serves_all and is_left_to_slots(context, experiment, counts)
    return None if is_left else allowed


def _usable(
    session: Session, experiment: ExperimentRow, target: ProposalTarget, offered: Proposal | None
) -> Proposal | None:
    """The offered proposal if it is for the target, and no trial has changed since it was computed ahead.

    One that was computed for this claim is used even if trials have changed; otherwise trials that end at a high rate
    would make every proposal out of date.
    """
    if offered is None or offered.target != target:
        return None
    has_new_milestones = offered.seen_milestone not in {None, experiment.milestone_count}
    if offered.may_be_outdated and (
        has_new_milestones or any_changed_after(session, experiment.id, offered.seen_event)
    ):
        return None
    return offered


def propose_ahead(context: Context, experiment_id: str) -> None:
    """Schedule the next proposal, if a claim could use one now. Call this after the history has changed."""

    def next_number(session: Session) -> int | None:
        experiment = session.get(ExperimentRow, experiment_id)
        if experiment is None:
            return None
        counts = counts_by_status(session, experiment_id, COUNTED)
        may_create = not counts[TrialStatus.QUEUED] and startable_trials(experiment, counts) == "any"
        return experiment.trial_count if may_create else None

    context.proposals.prepare(experiment_id, next_number)


def propose_next_in_line(context: Context) -> None:
    """Schedule the next proposals of the experiments whose turn is next."""
    with context.database.read() as session:
        line = read_line(session)
    for place in chain(*line.pages[:1]):
        propose_ahead(context, place.id)


def _assign_in_own_transaction(
    context: Context, experiment_id: str, claimant: Claimant, offered: Proposal | None
) -> AssignResult:
    """`try_assign` in a transaction of its own. If the same request has been answered concurrently, its answer."""
    try:
        with context.database.write() as session:
            if claimant.serves_all:
                is_new = offered is not None and not offered.may_be_outdated
                wait_little_for_locks(session, LOCK_SECONDS if is_new else BRIEF_LOCK_SECONDS)
            locked = try_to_lock(session, experiment_id)
            if locked is None:
                return NothingToRun()
            outcome = try_assign(context, locked, claimant, offered)
            if isinstance(outcome, NothingToRun):  # the other call may have taken the last trial that could start
                return earlier_answer(context, session, claimant) or outcome
            return outcome
    except IntegrityError:
        with context.database.read() as session:
            earlier = earlier_answer(context, session, claimant)
        if earlier is None:
            raise
        return earlier


def _start_attempt(
    context: Context, locked: LockedExperiment, trial: TrialRow, claimant: Claimant, lease: IssuedLease
) -> AttemptRow:
    session, experiment, now = locked.session, locked.experiment, locked.now
    resume = resume_point(session, trial.id) if trial.attempt_count else None
    trial.attempt_count += 1
    attempt = AttemptRow(
        trial_id=trial.id,
        experiment_id=experiment.id,
        number=trial.attempt_count,
        holder=claimant.holder,
        request_id=claimant.request_id,
        lease_digest=lease.digest,
        lease_salt=lease.salt,
        lease_expires_at=now + timedelta(seconds=context.settings.lease_seconds),
        service=context.service_name,
        resume_uri=resume.uri if resume else None,
        resume_step=resume.step if resume else None,
        first_step=resume.step + 1 if resume else 1,
        next_sequence=0,
        queued_at=trial.queued_at,
        started_at=now,
        traceparent=tracing.begin_trace(
            "assign",
            experiment.traceparent,
            experiment=experiment.id,
            trial=trial.id,
            attempt=trial.attempt_count,
            holder=claimant.holder,
        ),
    )
    session.add(attempt)
    facts = {"attempt": attempt.number, "agent": claimant.holder}
    move_trial(locked, trial, TrialStatus.RUNNING, reason=None, **facts)
    return attempt


def _propose(context: Context, experiment_id: str, number: int) -> Proposal | None:
    """Return None if the space is exhausted. Raises ProposalFailed. Either ends the experiment.

    Except where this process lacks a library: the experiment waits, for another service or for an installation.
    """
    try:
        with log_context.bound(experiment=experiment_id), tracing.span("propose", trial_number=number):
            return context.proposals.propose(experiment_id, number)
    except SpaceExhausted as error:
        _end_proposals(context, experiment_id, number, EndReason.SPACE_EXHAUSTED, str(error))
        return None
    except SQLAlchemyError:
        raise
    except LibraryMissing as error:
        logger.info("experiment %s waits: %s", experiment_id, error)
        raise ProposalFailed(str(error)) from error
    except Exception as error:
        with log_context.bound(experiment=experiment_id):
            logger.exception("the search failed for experiment %s", experiment_id)
        why = storable(f"the search could not propose trial {number}: {type(error).__name__}: {error}")
        _end_proposals(context, experiment_id, number, EndReason.SEARCH_FAILED, why)
        raise ProposalFailed(why) from error


def _end_proposals(context: Context, experiment_id: str, number: int, reason: EndReason, detail: str) -> None:
    """Let the experiment end with the trials that it has, unless trials were added meanwhile."""
    with context.database.write() as session:
        locked = try_to_lock(session, experiment_id)
        if locked is None or locked.experiment.trial_count != number or locked.experiment.end_reason is not None:
            return
        begin_ending(locked, reason, detail)
        advance_experiment(locked, spec_of(locked.experiment))
    context.notify_changed()
