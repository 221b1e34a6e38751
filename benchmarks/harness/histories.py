"""Bulk insertion of finished trials into Optuna's storages, in their own format: one by one it takes minutes."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages._rdb.models import TrialModel, TrialParamModel, TrialValueModel
from optuna.storages.journal._storage import JournalOperation
from optuna.trial import TrialState
from sqlalchemy import insert

Params = Mapping[str, Any]
Trials = Sequence[tuple[Params, float]]
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def filled(
    storage: BaseStorage, name: str, distributions: Mapping[str, BaseDistribution], trials: Trials
) -> optuna.Study:
    """Return a new study with these trials and their values."""
    study = optuna.create_study(storage=storage, study_name=name)
    internal = [(_internal(distributions, params), value) for params, value in trials]
    documents = {name: distribution_to_json(one) for name, one in distributions.items()}
    if isinstance(storage, RDBStorage):
        _into_tables(storage, study._study_id, documents, internal)  # noqa: SLF001
    elif isinstance(storage, JournalStorage):
        logs = list(_logged(study._study_id, documents, internal))  # noqa: SLF001
        storage._backend.append_logs(logs)  # noqa: SLF001
    else:
        of = dict(distributions)
        study.add_trials(
            [optuna.create_trial(value=value, params=dict(one), distributions=of) for one, value in trials]
        )
    return optuna.load_study(study_name=name, storage=storage)


def _internal(distributions: Mapping[str, BaseDistribution], params: Params) -> dict[str, float]:
    return {name: distributions[name].to_internal_repr(value) for name, value in params.items()}


def _into_tables(
    storage: RDBStorage, study_id: int, documents: Mapping[str, str], trials: Sequence[tuple[dict[str, float], float]]
) -> None:
    times = {"datetime_start": BEGAN.replace(tzinfo=None), "datetime_complete": BEGAN.replace(tzinfo=None)}
    finite = TrialValueModel.TrialValueType.FINITE
    facts = [
        {"trial_id": number + 1, "number": number, "study_id": study_id, "state": TrialState.COMPLETE, **times}
        for number in range(len(trials))
    ]
    values = [
        {"trial_id": number + 1, "objective": 0, "value": value, "value_type": finite}
        for number, (_, value) in enumerate(trials)
    ]
    params = [
        {"trial_id": number + 1, "param_name": name, "param_value": value, "distribution_json": documents[name]}
        for number, (params, _) in enumerate(trials)
        for name, value in params.items()
    ]
    with storage.engine.begin() as connection:
        for model, rows in ((TrialModel, facts), (TrialValueModel, values), (TrialParamModel, params)):
            connection.execute(insert(model), rows)


def _logged(
    study_id: int, documents: Mapping[str, str], trials: Sequence[tuple[dict[str, float], float]]
) -> Iterator[dict[str, Any]]:
    at = BEGAN.isoformat(timespec="microseconds")
    for params, value in trials:
        yield {
            "op_code": JournalOperation.CREATE_TRIAL,
            "worker_id": "benchmark",
            "study_id": study_id,
            "state": TrialState.COMPLETE,
            "datetime_start": at,
            "datetime_complete": at,
            "value": value,
            "values": None,
            "params": params,
            "distributions": documents,
            "user_attrs": {},
            "system_attrs": {},
            "intermediate_values": {},
        }
