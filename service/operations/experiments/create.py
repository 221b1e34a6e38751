"""Taking in an experiment."""

import hashlib
import json
import secrets
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.domain.statuses import ExperimentStatus
from service.errors import Conflict, Invalid, Mistake, NameTaken, NotFound
from service.operations.packages.archive import find_package
from service.operations.packages.entrypoint import mistakes_in_entrypoint
from service.operations.proposals.warm_start import WarmStart, gather_warm_start, store_warm_start
from service.operations.transitions import create_trial
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.store.events import append_event
from service.store.experiments import find_experiment, find_experiment_by_key
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow


def create_experiment(context: Context, spec: ExperimentSpec, idempotency_key: str | None = None) -> ExperimentRow:
    """The same key with the same spec gives the same experiment.

    Raises NameTaken, Conflict for a key used with another spec, Invalid for code that cannot run and for experiments
    that its search cannot learn from.
    """
    document = spec.model_dump(mode="json")
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    with context.database.read() as session:
        earlier = _earlier(session, idempotency_key, digest)
    if earlier is not None:
        return earlier
    _check_code(context, spec)
    warmth = gather_warm_start(context, spec)
    try:
        experiment = _insert(context, spec, document, idempotency_key, digest, warmth)
    except IntegrityError as error:
        return _after_race(context, spec, idempotency_key, digest, error)
    context.notify_changed()
    return experiment


def _insert(
    context: Context,
    spec: ExperimentSpec,
    document: dict[str, Any],
    key: str | None,
    digest: str,
    warmth: WarmStart | None,
) -> ExperimentRow:
    with context.database.write() as session:
        if find_experiment(session, spec.name) is not None:
            raise _taken(spec)
        now = database_now(session)
        experiment = ExperimentRow(
            id=f"x-{secrets.token_hex(6)}",
            name=spec.name,
            spec=document,
            tags=dict(spec.tags),
            status=ExperimentStatus.RUNNING,
            priority=spec.priority,
            trial_count=0,
            event_count=0,
            created_at=now,
            idempotency_key=key,
            request_digest=digest,
        )
        session.add(experiment)
        session.flush()
        append_event(session, experiment, "experiment.created", {"name": spec.name, "spec": document}, at=now)
        if warmth is not None:
            store_warm_start(session, experiment, warmth, now)
        for params in spec.enqueue:
            create_trial(session, experiment, dict(params), "enqueue", now)
        return experiment


def _earlier(session: Session, key: str | None, digest: str) -> ExperimentRow | None:
    experiment = find_experiment_by_key(session, key) if key else None
    if experiment is not None and experiment.request_digest != digest:
        raise Conflict(f"the Idempotency-Key was used for experiment {experiment.name}, with another spec")
    return experiment


def _after_race(
    context: Context, spec: ExperimentSpec, key: str | None, digest: str, error: IntegrityError
) -> ExperimentRow:
    """Two requests at once: the other one made it."""
    with context.database.read() as session:
        earlier = _earlier(session, key, digest)
    if earlier is None:
        raise _taken(spec) from error
    return earlier


def _taken(spec: ExperimentSpec) -> NameTaken:
    return NameTaken(f"there is an experiment {spec.name!r} already; choose another name", name=spec.name)


def _check_code(context: Context, spec: ExperimentSpec) -> None:
    trainer = spec.trainer
    if trainer.package is None or trainer.entrypoint is None:
        return
    try:
        package, body = find_package(context, trainer.package)
    except NotFound as error:
        raise Invalid([Mistake("trainer.package", error.detail)]) from error
    mistakes = mistakes_in_entrypoint(package, body, trainer.entrypoint)
    if mistakes:
        raise Invalid(mistakes)
