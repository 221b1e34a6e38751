"""An experiment with thousands of trials, stored without having run: nothing that is done for it may be quadratic."""

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from service.operations.checkpoints.folders import run_of, uri_below
from service.operations.experiments.creation import store_experiment
from service.runtime.context import Context
from service.specification.parser import parse_spec
from service.store.sql.database import database_now
from service.store.tables import AttemptRow, CheckpointRow, ExperimentRow, TrialRow
from tests.conftest import a_spec

ENDED_AGO = timedelta(minutes=20)
TRAINER = {"kind": "torch", "entrypoint": "train:train_fn"}


def experiment_with_trials(
    context: Context, count: int, status_of: Callable[[int], str] = lambda _: "completed", **changes: Any
) -> str:
    """Returns the experiment's id. Each trial had an attempt and saved a checkpoint; the later ones are better."""
    limits = {"max_trials": 10 * count, "parallelism": 8}
    created = store_experiment(context, parse_spec(a_spec(trainer=TRAINER, limits=limits, **changes)))
    with context.database.write() as session:
        experiment = session.get_one(ExperimentRow, created.id)
        experiment.trial_count = count
        _add_trials(session, experiment, [status_of(number) for number in range(count)], context.settings.storage)
    return created.id


def _add_trials(session: Session, experiment: ExperimentRow, statuses: list[str], storage: str) -> None:
    at = database_now(session) - ENDED_AGO
    ids = [f"t-{secrets.token_hex(6)}" for _ in statuses]
    of_experiment = {"experiment_id": experiment.id, "created_at": at, "started_at": at, "ended_at": at}
    trials = [
        of_experiment
        | {"id": id_, "number": number, "params": {"lr": 0.5}, "origin": "search", "status": status}
        | {"value": float(number), "last_step": 9, "changed_at_event": 0, "killed": False, "attempt_count": 1}
        for number, (id_, status) in enumerate(zip(ids, statuses, strict=True))
    ]
    attempts = [
        {"trial_id": id_, "experiment_id": experiment.id, "number": 1, "holder": "here", "lease_digest": id_}
        | {"first_step": 1, "next_sequence": 10, "outcome": status, "started_at": at, "ended_at": at}
        for id_, status in zip(ids, statuses, strict=True)
    ]
    checkpoints = [
        {"trial_id": id_, "step": 9, "attempt": 1, "sequence": 9, "at": at}
        | {"uri": uri_below(storage, f"{run_of(experiment, number, 1)}/checkpoint_9"), "bytes": 1}
        for number, id_ in enumerate(ids)
    ]
    session.execute(insert(TrialRow), trials)
    session.execute(insert(AttemptRow), attempts)
    session.execute(insert(CheckpointRow), checkpoints)
