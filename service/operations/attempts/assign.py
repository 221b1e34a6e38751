"""Giving a trial to whoever asks for one: a queued one, or a new one that the search proposes.

The proposal is computed between two short transactions; the second looks again at everything that may have changed.
"""

import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from search.problem import SpaceExhausted
from search.space.space import Params
from service.domain.limits import has_room
from service.domain.placement import fits_ever
from service.domain.statuses import EndReason, ExperimentStatus, TrialStatus
from service.operations.attempts.obsolete_checkpoints import leftovers, run_name
from service.operations.experiments.termination import advance_experiment, begin_ending, limits_of, may_run_trials
from service.operations.transitions import move_trial
from service.runtime.context import Context
from service.runtime.proposal_cache import Place, Proposal
from service.runtime.spec_cache import spec_of
from service.store.agents import nodes_of_connected
from service.store.attempts import attempt_by_request
from service.store.events import append_event
from service.store.experiments import experiments_with, line_of_experiments, lock_experiment, pages_of
from service.store.generations import place_of
from service.store.sql.database import database_now
from service.store.sql.write_session import change_later
from service.store.tables import AttemptRow, ExperimentRow, TrialRow
from service.store.trials import any_changed_after, any_with, counts_by_status, next_queued
from trainer.wire import Assignment, CheckpointRef, Kind, Lease, Node

logger = logging.getLogger(__name__)

Room = Literal["any", "queued"]

COUNTED = TrialStatus.QUEUED, TrialStatus.RUNNING
"""What there is of them says whether there is room."""

MAX_PROPOSALS = 5
"""Proposals computed for one ask, should others take the trial's number again and again meanwhile."""


@dataclass(frozen=True)
class Asker:
    """Who asks, and the name of the request: the same request is answered once.

    `stands_back`: leaves a trial to the warm slot that is about to get it.
    """

    holder: str
    request_id: str
    stands_back: bool = False


@dataclass(frozen=True)
class Given:
    """What a request was answered before; None when that attempt has ended since."""

    assignment: Assignment | None


class ProposalFailed(Exception):
    """The search cannot propose for an experiment; the experiment ends with the reason."""


def assign(context: Context, experiment_id: str, asker: Asker) -> Assignment | None:
    """None when the experiment has nothing to run now. The same request twice at once gets one answer."""
    ready = context.proposals.newest(experiment_id)
    taken = _look(context, experiment_id, asker, ready, was_ready=True)
    assignment = complete(context, experiment_id, asker, taken)
    if assignment is not None:
        propose_ahead(context, experiment_id)
    return assignment


def complete(context: Context, experiment_id: str, asker: Asker, taken: Assignment | Place | None) -> Assignment | None:
    """`assign`, from what `take` has answered on."""
    for _ in range(MAX_PROPOSALS):
        if not isinstance(taken, Place):
            break
        proposed = _propose(context, experiment_id, taken.number)
        # Without a proposal there may be trials yet that were waiting for the last new one.
        taken = _look(context, experiment_id, asker, proposed)
    return None if isinstance(taken, Place) else taken


def _look(
    context: Context, experiment_id: str, asker: Asker, proposed: Proposal | None, *, was_ready: bool = False
) -> Assignment | Place | None:
    try:
        with context.database.write() as session:
            experiment = lock_experiment(session, experiment_id)
            if experiment is None:
                return None
            return take(context, session, experiment, asker, proposed, was_ready=was_ready)
    except IntegrityError:
        given = given_before(context, asker)
        if given is None:
            raise
        return given.assignment


def given_before(context: Context, asker: Asker) -> Given | None:
    """What the same request was answered before; None for a new request."""
    with context.database.read() as session:
        return given_in(context, session, asker)


def given_in(context: Context, session: Session, asker: Asker) -> Given | None:
    """As `given_before`."""
    attempt = attempt_by_request(session, asker.holder, asker.request_id)
    if attempt is None:
        return None
    if attempt.ended_at is not None:
        return Given(None)
    trial = session.get_one(TrialRow, attempt.trial_id)
    experiment = session.get_one(ExperimentRow, attempt.experiment_id)
    return Given(_assignment(context, session, experiment, trial, attempt))


def comes_first(session: Session, experiment: ExperimentRow, now: datetime) -> bool:
    """Whether no other experiment is before it in line for what its trial has just freed."""
    agents = nodes_of_connected(session, now).values()
    line = (row for page in pages_of(line_of_experiments(session)) for row in experiments_with(session, page))
    for row in line:
        if row.id == experiment.id:
            return True
        if _could_run(row, agents) and _room(session, row) is not None:
            return False
    return False


def _could_run(experiment: ExperimentRow, agents: Collection[Sequence[Node]]) -> bool:
    trainer = spec_of(experiment).trainer
    return trainer.kind is not Kind.EXTERNAL and any(fits_ever(trainer.scaling, nodes) for nodes in agents)


def take(
    context: Context,
    session: Session,
    experiment: ExperimentRow,
    asker: Asker,
    proposed: Proposal | None = None,
    *,
    was_ready: bool = False,
) -> Assignment | Place | None:
    """An assignment; or what to propose a trial for first; or None when there is no room. Under the experiment's lock.

    A proposal that was ready before anybody asked is given only if nothing has changed since. One that was computed for
    the ask would be late each time if many trials end meanwhile.
    """
    now = database_now(session)
    room = _room(session, experiment)
    if room is None or (asker.stands_back and _is_spoken_for(context, session, experiment)):
        return None
    trial = next_queued(session, experiment.id)
    if trial is None and room == "queued":
        return None
    place = Place(experiment.trial_count, experiment.spec_changed_at_event)
    if trial is None and proposed is not None and proposed.place == place:
        is_late = was_ready and any_changed_after(session, experiment.id, proposed.seen_event)
        trial = None if is_late else create_trial(session, experiment, dict(proposed.params), "search", now)
    if trial is None:
        return place
    attempt = _start_attempt(context, session, experiment, trial, asker, now)
    return _assignment(context, session, experiment, trial, attempt)


def _is_spoken_for(context: Context, session: Session, experiment: ExperimentRow) -> bool:
    """Whether all the room that there is has just been made by slots that wait for their next trial."""
    waiting = context.handover.count(experiment.id)
    if not waiting:
        return False
    running = counts_by_status(session, experiment.id, COUNTED)[TrialStatus.RUNNING]
    return limits_of(spec_of(experiment)).parallelism - running <= waiting


def propose_ahead(context: Context, experiment_id: str) -> None:
    """Has the next proposal computed, after what may have changed it, if one could be asked for now."""

    def next_number(session: Session) -> int | None:
        experiment = session.get(ExperimentRow, experiment_id)
        if experiment is None or _room(session, experiment) != "any":
            return None
        return None if any_with(session, experiment_id, TrialStatus.QUEUED) else experiment.trial_count

    context.proposals.prepare(context.database, experiment_id, next_number)


def _propose(context: Context, experiment_id: str, number: int) -> Proposal | None:
    """None when the search has no more to propose. Raises ProposalFailed."""
    try:
        return context.proposals.propose(context.database, experiment_id, number)
    except SpaceExhausted as error:
        _no_new_trials(context, experiment_id, number, EndReason.SPACE_EXHAUSTED, str(error))
        return None
    except SQLAlchemyError:
        raise
    except Exception as error:
        logger.exception("the search failed for experiment %s", experiment_id)
        why = f"the search could not propose trial {number}: {type(error).__name__}: {error}"
        _no_new_trials(context, experiment_id, number, EndReason.SEARCH_FAILED, why)
        raise ProposalFailed(why) from error


def create_trial(
    session: Session, experiment: ExperimentRow, params: Params, origin: str, now: datetime, key: str | None = None
) -> TrialRow:
    """The caller holds the experiment's lock. `origin` is `search`, or `enqueue` for a given configuration.

    `key` is the Idempotency-Key of the call that gave it.
    """
    id_, number = f"t-{secrets.token_hex(6)}", experiment.trial_count
    change_later(experiment, trial_count=number + 1)
    data = {"number": number, "params": params, "origin": origin}
    trial = TrialRow(
        id=id_,
        experiment_id=experiment.id,
        number=number,
        params=params,
        origin=origin,
        status=TrialStatus.QUEUED,
        killed=False,
        attempt_count=0,
        enqueue_key=key,
        changed_at_event=append_event(session, experiment, "trial.created", data, at=now, trial_id=id_),
        created_at=now,
    )
    session.add(trial)
    session.flush()
    return trial


def room_in(experiment: ExperimentRow, counts: Mapping[str, int]) -> Room | None:
    """Whether a trial may start: any, or only one that is queued already. `counts`: of its trials, of `COUNTED`."""
    if experiment.status != ExperimentStatus.RUNNING or not may_run_trials(experiment):
        return None
    queued, running = counts[TrialStatus.QUEUED], counts[TrialStatus.RUNNING]
    limits = limits_of(spec_of(experiment))
    if not has_room(limits, created=experiment.trial_count, queued=queued, running=running):
        return None
    if experiment.end_reason is None:
        return "any"
    return "queued" if queued else None


def _room(session: Session, experiment: ExperimentRow) -> Room | None:
    return room_in(experiment, counts_by_status(session, experiment.id, COUNTED))


def _start_attempt(
    context: Context, session: Session, experiment: ExperimentRow, trial: TrialRow, asker: Asker, now: datetime
) -> AttemptRow:
    place = place_of(session, trial.id) if trial.attempt_count else None
    trial.attempt_count += 1
    attempt = AttemptRow(
        trial_id=trial.id,
        experiment_id=experiment.id,
        number=trial.attempt_count,
        holder=asker.holder,
        request_id=asker.request_id,
        lease_token=secrets.token_urlsafe(24),
        lease_expires_at=now + timedelta(seconds=context.settings.lease_seconds),
        resume_uri=place.uri if place else None,
        resume_step=place.step if place else None,
        first_step=place.step + 1 if place else 1,
        next_sequence=0,
        started_at=now,
    )
    session.add(attempt)
    facts = {"attempt": attempt.number, "agent": asker.holder}
    move_trial(session, experiment, trial, TrialStatus.RUNNING, reason=None, at=now, **facts)
    return attempt


def _assignment(
    context: Context, session: Session, experiment: ExperimentRow, trial: TrialRow, attempt: AttemptRow
) -> Assignment:
    spec = spec_of(experiment)
    resume = None
    if attempt.resume_uri is not None and attempt.resume_step is not None:
        resume = CheckpointRef(uri=attempt.resume_uri, step=attempt.resume_step)
    expires_at = attempt.lease_expires_at or database_now(session)
    left = leftovers(session, experiment, trial, attempt)
    return Assignment(
        trial=trial.id,
        experiment=experiment.name,
        experiment_id=experiment.id,
        number=trial.number,
        attempt=attempt.number,
        params=trial.params,
        config={**spec.config, **trial.params},
        lease=Lease(token=attempt.lease_token, expires_at=expires_at, seconds=context.settings.lease_seconds),
        trainer=spec.trainer,
        resume=resume,
        run_name=run_name(experiment, trial, attempt.number),
        storage_path=context.settings.storage,
        keep_checkpoints=spec.checkpoints.keep,
        earlier_checkpoints=left.checkpoints,
        earlier_runs=left.runs,
        max_seconds=spec.limits.max_trial_seconds,
    )


def _no_new_trials(context: Context, experiment_id: str, number: int, reason: EndReason, detail: str) -> None:
    """Unless trials were added meanwhile, the experiment ends when those that are there have ended."""
    with context.database.write() as session:
        experiment = lock_experiment(session, experiment_id)
        if experiment is None or experiment.trial_count != number or experiment.end_reason is not None:
            return
        now = database_now(session)
        begin_ending(session, experiment, reason, now, detail)
        advance_experiment(session, experiment, spec_of(experiment), now)
    context.ring()
