"""An agent's ask over all experiments, and anybody's ask for a trial of one."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from sqlalchemy.exc import NoResultFound

from service.domain.placement import fits_now
from service.domain.statuses import LIVE_EXPERIMENT
from service.errors import AgentNameTaken, NotFound, WrongState
from service.operations.attempts.assign import COUNTED, Asker, ProposalFailed, assign, given_before, room_in
from service.operations.attempts.leases import locked
from service.operations.attempts.loss import BY_ASK, lose
from service.operations.attempts.obsolete_checkpoints import obsolete
from service.runtime.context import Context
from service.runtime.spec_cache import spec_of
from service.store.attempts import living_attempts
from service.store.experiments import experiments_with, line_of_experiments, pages_of
from service.store.lookup import experiment_named
from service.store.sql.database import database_now
from service.store.tables import AgentRow, AttemptRow
from service.store.trials import counts_of_all
from trainer.wire import Assignment, Claim, HeldAttempt, HeldAttempts, Instance, Kind, LostAttempt, Node


def claim(context: Context, agent: str, message: Claim) -> Assignment | None:
    """One look for work that fits the agent's free resources. The same request gets the same answer."""
    asker = Asker(agent, message.request_id, stands_back=True)
    given = given_before(context, asker)
    if given is not None:
        return given.assignment
    for experiment_id in _candidates(context, message.nodes):
        try:
            assignment = assign(context, experiment_id, asker)
        except ProposalFailed:
            continue  # that experiment has ended with the reason; the others are none the worse for it
        if assignment is not None:
            context.ring()
            return assignment
    return None


def give_up_lost(context: Context, agent: str, lost: Sequence[LostAttempt]) -> None:
    """Ends attempts that the agent holds and says it has lost. Those that have ended already are passed over."""
    wanted = {(one.trial, one.attempt): one for one in lost}
    with context.database.read() as session:
        found = [(a.id, wanted.get((a.trial_id, a.number))) for a in living_attempts(session, holder=agent)]
    ids = [(id_, one) for id_, one in found if one is not None]
    for attempt_id, one in ids:
        # Its experiment may have been deleted since.
        with suppress(NotFound, NoResultFound), context.database.write() as session:
            held = locked(session, session.get_one(AttemptRow, attempt_id))
            if held.attempt.ended_at is None:
                message = f"agent {agent!r} has no slot that runs it"
                lose(held, message, context.settings.lease_seconds, began=one.began)
    if ids:
        context.ring_all()


def attempts_held_by(context: Context, agent: str) -> HeldAttempts:
    with context.database.read() as session:
        living = living_attempts(session, holder=agent)
        return HeldAttempts(
            attempts=[HeldAttempt(trial=a.trial_id, attempt=a.number) for a in living],
            obsolete=obsolete(session, context.settings.storage, database_now(session)),
        )


def note_agent(context: Context, name: str, message: Claim) -> None:
    """Remembers who is connected and with what. Raises AgentNameTaken for a second process under one name."""
    with context.database.write() as session:
        now = database_now(session)
        row = session.get(AgentRow, name, with_for_update=True)
        if row is None:
            row = AgentRow(name=name, first_seen_at=now)
            session.add(row)
        if message.instance is not None:
            seconds = context.settings.lease_seconds + message.wait_seconds
            _take_name(row, message.instance, message.replaces, now + timedelta(seconds=seconds))
        row.nodes = [node.model_dump(mode="json") for node in message.nodes]
        row.last_seen_at = now


def release_name(context: Context, name: str, instance: Instance) -> None:
    """The agent has ended: another process may work under its name. What others hold by now stays theirs."""
    with context.database.write() as session:
        row = session.get(AgentRow, name, with_for_update=True)
        if row is not None and row.instance == instance.model_dump(mode="json"):
            row.instance = row.name_expires_at = None


def _take_name(row: AgentRow, instance: Instance, replaces: Instance | None, until: datetime) -> None:
    holder = Instance.model_validate(row.instance) if row.instance else None
    if holder is not None and holder not in (instance, replaces):
        raise AgentNameTaken(
            f"another agent works under the name {row.name!r}: process {holder.pid} at {holder.place.split()[0]}. Give "
            "this one a name of its own; or end the other one, and this one takes over its slots",
            holder=holder.model_dump(),
        )
    row.instance, row.name_expires_at = instance.model_dump(mode="json"), until


def ask(context: Context, name_or_id: str, request_id: str | None) -> Assignment | None:
    """A trial to run oneself.

    Raises NotFound, and WrongState for a finished experiment, for a key whose trial has ended, and for a failed search.
    """
    with context.database.read() as session:
        experiment = experiment_named(session, name_or_id)
        if experiment.status not in LIVE_EXPERIMENT:
            raise WrongState(
                f"experiment {experiment.name} is {experiment.status}; only a running one gives trials",
                experiment_status=experiment.status,
            )
        experiment_id = experiment.id
    asker = Asker(f"{BY_ASK}{experiment_id}", request_id or secrets.token_hex(16))
    given = given_before(context, asker) if request_id else None
    if given is not None and given.assignment is None:
        raise WrongState("the trial that was given for this Idempotency-Key has ended; ask with a new key")
    try:
        assignment = given.assignment if given else assign(context, experiment_id, asker)
    except ProposalFailed as error:
        raise WrongState(str(error)) from error
    context.ring()
    return assignment


def _candidates(context: Context, nodes: list[Node]) -> Iterator[str]:
    with context.database.read() as session:
        line = line_of_experiments(session)
    for page in pages_of(line):
        with context.database.read() as session:
            counts = counts_of_all(session, page, COUNTED)
            rows = [row for row in experiments_with(session, page) if room_in(row, counts[row.id]) is not None]
        for row in rows:
            trainer = spec_of(row).trainer
            if trainer.kind is not Kind.EXTERNAL and fits_now(trainer.scaling, nodes):
                yield row.id
