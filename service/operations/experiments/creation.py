"""Creates an experiment from its spec."""

import hashlib
import json
import secrets
from typing import Any

from sqlalchemy.exc import IntegrityError

from search.mistakes import Mistake
from service.domain.statuses import ExperimentStatus
from service.errors import Conflict, Invalid, NameTaken
from service.operations.early_stopping.rule_choice import announce
from service.operations.early_stopping.stored_choice import stored_choice
from service.operations.experiments.warm_start import WarmStart, gather_warm_start, store_warm_start
from service.operations.locked_experiment import LockedExperiment
from service.operations.packages.package_store import unknown_package
from service.operations.transitions import create_trial
from service.runtime.caches.experiment_caches import cache_spec
from service.runtime.context import Context
from service.specification.initial_rule import given_training, initial_rule
from service.specification.models import ExperimentSpec
from service.store.events import append_event
from service.store.experiments import find_experiment, find_experiment_by_key
from service.store.packages import hold_package
from service.store.sql.database import database_now
from service.store.tables import ExperimentRow
from trainer.traces import tracing


def store_experiment(context: Context, spec: ExperimentSpec, idempotency_key: str | None = None) -> ExperimentRow:
    """Stores a running experiment, with a queued trial for each entry of `enqueue`.

    `created_with` comes first. A concurrent call with the same Idempotency-Key and spec returns the same experiment.
    Raises NameTaken, Conflict for a key that was used with another spec, and Invalid for a package that is not stored
    and for experiments in `search.warm_start` that the search cannot learn from.
    """
    submitted = spec
    spec, chosen_rule = initial_rule(spec)
    rule_choice = stored_choice(chosen_rule, given_training(submitted)) if chosen_rule else None
    warm_start = gather_warm_start(context, spec)
    try:
        experiment = _insert(context, spec, rule_choice, idempotency_key, request_digest(submitted), warm_start)
    except (IntegrityError, NameTaken) as error:  # by a concurrent call, which may be a repeat of this one
        if idempotency_key is not None and (concurrent := created_with(context, idempotency_key, submitted)):
            return concurrent
        raise _name_taken(spec) from error
    cache_spec(experiment, spec)
    context.notify_changed()
    return experiment


def _insert(
    context: Context,
    spec: ExperimentSpec,
    rule_choice: dict[str, Any] | None,
    key: str | None,
    digest: str,
    warm_start: WarmStart | None,
) -> ExperimentRow:
    with context.database.write() as session:
        if find_experiment(session, spec.name) is not None:
            raise _name_taken(spec)
        if spec.trainer.package is not None and not hold_package(session, spec.trainer.package):
            raise Invalid([Mistake(("trainer", "package"), unknown_package(spec.trainer.package).detail)])
        now = database_now(session)
        experiment = ExperimentRow(
            id=f"x-{secrets.token_hex(6)}",
            name=spec.name,
            spec=spec.model_dump(mode="json"),
            rule_choice=rule_choice,
            tags=dict(spec.tags),
            status=ExperimentStatus.RUNNING,
            priority=spec.priority,
            trial_count=0,
            event_count=0,
            created_at=now,
            idempotency_key=key,
            request_digest=digest,
            traceparent=tracing.traceparent,
        )
        session.add(experiment)
        session.flush()
        append_event(session, experiment, "experiment.created", {"name": spec.name, "spec": experiment.spec}, at=now)
        locked = LockedExperiment(session, experiment, now)  # a new row, which no other transaction sees
        announce(locked, spec)
        if warm_start is not None:
            store_warm_start(locked, warm_start)
        for params in spec.enqueue:
            create_trial(locked, dict(params), "enqueue", source="user")
        return experiment


def request_digest(spec: ExperimentSpec) -> str:
    """A digest that a version with more fields computes, too: the call may be repeated at such a version."""
    return _digest(spec.model_dump(mode="json", exclude_unset=True))


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _accepted_digests(spec: ExperimentSpec) -> set[str]:
    """Earlier versions stored the digest of all fields, with their defaults."""
    return {request_digest(spec), _digest(spec.model_dump(mode="json"))}


def created_with(context: Context, key: str, spec: ExperimentSpec) -> ExperimentRow | None:
    """The experiment that a call with this key has created. Raises Conflict for a key of another spec."""
    with context.database.read() as session:
        experiment = find_experiment_by_key(session, key)
    if experiment is not None and experiment.request_digest not in _accepted_digests(spec):
        raise Conflict(f"the Idempotency-Key was used for experiment {experiment.name}, with another spec")
    return experiment


def _name_taken(spec: ExperimentSpec) -> NameTaken:
    return NameTaken(f"an experiment named {spec.name!r} exists already; choose another name", name=spec.name)
