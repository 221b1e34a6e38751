"""Claims of agents, over all experiments, and of callers that run a trial of one experiment themselves."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from sqlalchemy.exc import NoResultFound

from service.domain.placement import fits_now
from service.domain.statuses import LIVE_EXPERIMENT
from service.errors import AgentNameTaken, NotFound, WrongState
from service.operations.attempts.assignment import Assigned, AttemptEnded, Claimant, earlier_answer
from service.operations.attempts.attempt_end import end_as_lost
from service.operations.attempts.capacity import COUNTED, startable
from service.operations.attempts.leases import lock_attempt
from service.operations.attempts.next_trial import ProposalFailed, assign, propose_ahead
from service.operations.checkpoints.experiment_deletion import deletions_of_agent
from service.operations.checkpoints.obsolete_checkpoints import obsolete_files
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.agents import set_nodes
from service.store.attempts import ASK_HOLDER, living_attempts
from service.store.experiment_queue import startable_experiment_ids
from service.store.experiments import experiments_with
from service.store.json_of_other_versions import stored
from service.store.lookup import experiment_named
from service.store.sql.database import database_now
from service.store.tables import AgentRow, AttemptRow
from service.store.trials.trials import counts_of_all
from trainer.process_log.context import log_context
from trainer.wire import Assignment, Claim, HeldAttempt, HeldAttempts, Instance, Kind, LostAttempt, Node


def claim(context: Context, agent: str, message: Claim) -> Assignment | None:
    """Look once for a trial that fits the agent's free resources. The same request gets the same answer."""
    if message.storage_error is not None:
        return None  # a trial would train in vain
    claimant = Claimant(agent, message.request_id, yields_to_slots=True)
    with context.database.read() as session:
        earlier = earlier_answer(context, session, claimant)
    if earlier is not None:
        return earlier.assignment if isinstance(earlier, Assigned) else None
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
        claimant = Claimant(f"{ASK_HOLDER}{experiment_id}", request_id or secrets.token_hex(16))
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


def attempts_of_agent(context: Context, agent: str) -> HeldAttempts:
    """Return the living attempts that the agent holds, and the directories that it is to remove."""
    with context.database.read() as session:
        living = living_attempts(session, holder=agent)
        left = obsolete_files(session, context.settings.storage, database_now(session))
        return HeldAttempts(
            attempts=[HeldAttempt(trial=a.trial_id, attempt=a.number) for a in living],
            obsolete=left.directories,
            partly_needed=left.partly_needed,
            deletions=deletions_of_agent(session, agent),
            storage=context.settings.storage,
        )


def end_lost_attempts(context: Context, agent: str, lost: Sequence[LostAttempt]) -> None:
    """End attempts that the agent holds and reports as lost. Attempts that have ended already are left as they are."""
    wanted = {(one.trial, one.attempt): one for one in lost}
    with context.database.read() as session:
        found = [(a.id, wanted.get((a.trial_id, a.number))) for a in living_attempts(session, holder=agent)]
    ids = [(id_, one) for id_, one in found if one is not None]
    for attempt_id, one in ids:
        # Its experiment may have been deleted since.
        with suppress(NotFound, NoResultFound), context.database.write() as session:
            leased = lock_attempt(session, session.get_one(AttemptRow, attempt_id))
            if leased.attempt.ended_at is None:
                message = f"no slot of agent {agent!r} runs this attempt"
                end_as_lost(leased, message, context.settings.lease_seconds, began=one.began)
    if ids:
        context.notify_all()


def register_agent(context: Context, name: str, message: Claim) -> None:
    """Store that the agent is connected, and its nodes. Raises AgentNameTaken for a second process under one name."""
    with context.database.write() as session:
        now = database_now(session)
        row = session.get(AgentRow, name, with_for_update=True)
        if row is None:
            row = AgentRow(name=name, first_seen_at=now)
            session.add(row)
        if message.instance is not None:
            seconds = context.settings.lease_seconds + message.wait_seconds
            _take_name(row, message.instance, message.replaces, now + timedelta(seconds=seconds))
        set_nodes(row, message.nodes)
        row.storage_error = message.storage_error
        row.last_seen_at = now


def release_name(context: Context, name: str, instance: Instance) -> None:
    """Free the name of an agent that has ended, unless another process has taken the name since."""
    with context.database.write() as session:
        row = session.get(AgentRow, name, with_for_update=True)
        if row is not None and row.instance == instance.model_dump(mode="json"):
            row.instance = row.name_expires_at = None
    context.capacity_freed.notify()


def has_left(context: Context, name: str, message: Claim) -> bool:
    """Whether the agent that sent the claim has released its name since, or has lost it: it would run nothing."""
    if message.instance is None:
        return False
    with context.database.read() as session:
        row = session.get(AgentRow, name)
        return row is None or row.instance != message.instance.model_dump(mode="json")


def _take_name(row: AgentRow, instance: Instance, replaces: Instance | None, until: datetime) -> None:
    holder = stored(Instance, row.instance) if row.instance else None
    if holder is not None and holder not in (instance, replaces):
        raise AgentNameTaken(
            f"another agent uses the name {row.name!r}: process {holder.pid} at {holder.place.split()[0]}. Give this "
            "agent a name of its own; or end the other one, and this one takes over its slots",
            holder=holder.model_dump(),
        )
    row.instance, row.name_expires_at = instance.model_dump(mode="json"), until


def _candidates(context: Context, nodes: list[Node]) -> Iterator[str]:
    """Yield the experiments that may start a trial which fits on the nodes, the next in line first."""
    with context.database.read() as session:
        pages = startable_experiment_ids(session)
    for page in pages:
        with context.database.read() as session:
            counts = counts_of_all(session, page, COUNTED)
            rows = [row for row in experiments_with(session, page) if startable(row, counts[row.id]) is not None]
        for row in rows:
            trainer = spec_of(row).trainer
            if trainer.kind is not Kind.EXTERNAL and fits_now(trainer.group, nodes):
                yield row.id
