"""What is computed from experiments and kept until they change: the parsed spec, and the counts of trials."""

import logging
from collections.abc import Collection, Iterable, MutableMapping, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar

from cachetools import LRUCache
from pydantic import ValidationError
from sqlalchemy.orm import Session

from service.errors import Unavailable
from service.specification.models import ExperimentSpec
from service.specification.stored_spec import parse_stored_spec
from service.store.experiments import experiments_with, spec_versions
from service.store.sql.process_caches import cache_epoch
from service.store.tables import ExperimentRow
from service.store.trials.trials import counts_of_all
from trainer.wire import Trainer

logger = logging.getLogger(__name__)

MAX_EXPERIMENTS = 2000

Version = tuple[int, int]
"""The epoch of the process's caches, and the event with which what is cached has changed."""

Source = TypeVar("Source")
Value = TypeVar("Value")


class RowCache(Generic[Source, Value]):
    """Maps an experiment to a value and the part of its row that the value was computed from. Thread-safe."""

    def __init__(self) -> None:
        self._entries: MutableMapping[str, tuple[Source, Value]] = LRUCache(MAX_EXPERIMENTS)
        self._lock = Lock()

    def get(self, experiment_id: str, source: Source) -> Value | None:
        """Return None if there is no value, or if it was computed from another source."""
        with self._lock:
            entry = self._entries.get(experiment_id)
        return entry[1] if entry is not None and entry[0] == source else None

    def put(self, experiment_id: str, source: Source, value: Value) -> None:
        with self._lock:
            self._entries[experiment_id] = source, value


_parsed = RowCache[dict[str, Any], ExperimentSpec]()
_unreadable = RowCache[dict[str, Any], str]()
_counted = RowCache[Version, dict[str, int]]()
_trainers = RowCache[Version, Trainer]()


def cache_spec(experiment: ExperimentRow, spec: ExperimentSpec) -> None:
    """Keeps the spec that the row was written from, so that it is not parsed again."""
    _parsed.put(experiment.id, experiment.spec, spec)


def spec_of(experiment: ExperimentRow) -> ExperimentSpec:
    """Every call needs it, so it is parsed once for each version. All callers share the result; do not modify it."""
    spec = _parsed.get(experiment.id, experiment.spec)
    if spec is None:
        spec = parse_stored_spec(experiment.spec)
        cache_spec(experiment, spec)
    return spec


def why_unreadable(experiment: ExperimentRow) -> str | None:
    """Why this version cannot read the spec; None if it can. The log says it once for each version of the spec."""
    if (known := _unreadable.get(experiment.id, experiment.spec)) is not None:
        return known
    try:
        spec_of(experiment)
    except (Unavailable, ValidationError) as error:
        logger.warning("experiment %s is left out: %s", experiment.name, error)
        _unreadable.put(experiment.id, experiment.spec, str(error))
        return str(error)
    return None


def readable(experiments: Iterable[ExperimentRow]) -> list[ExperimentRow]:
    """The experiments whose spec this version can read: what is done for all must not fail because of one."""
    return [one for one in experiments if why_unreadable(one) is None]


def trainers_of(session: Session, experiment_ids: Collection[str]) -> dict[str, Trainer]:
    """How the trials of these experiments run, as far as this version can read it. A row is read once per version."""
    epoch = cache_epoch(session)
    versions = {id_: (epoch, event) for id_, event in spec_versions(session, experiment_ids).items()}
    known = {id_: one for id_, version in versions.items() if (one := _trainers.get(id_, version)) is not None}
    for row in readable(experiments_with(session, list(versions.keys() - known.keys()))):
        known[row.id] = spec_of(row).trainer
        _trainers.put(row.id, (epoch, row.spec_changed_at_event), known[row.id])
    return known


def trial_counts(session: Session, experiments: Sequence[ExperimentRow]) -> dict[str, dict[str, int]]:
    """How many trials experiments have in each status, with 0 for statuses that no trial has.

    Every new trial and every change of a status appends an event, so a count holds until the next event. On PostgreSQL
    a count may be newer than the row whose event number it is cached under; the next read then has a newer number.
    """
    epoch = cache_epoch(session)
    versions = {row.id: (epoch, row.event_count) for row in experiments}
    known = {id_: counts for id_, version in versions.items() if (counts := _counted.get(id_, version)) is not None}
    changed = versions.keys() - known
    counted = counts_of_all(session, changed) if changed else {}
    for id_, counts in counted.items():
        _counted.put(id_, versions[id_], counts)
    return known | counted
