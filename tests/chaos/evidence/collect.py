"""Collects the snapshot after a run: from SQL, the API, MLflow, the disk and the journals."""

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.store import charts
from service.store.sql.database import Database
from service.store.tables import (
    AttemptRow,
    CheckpointRow,
    DecisionRow,
    EventRow,
    ExperimentRow,
    ReportRow,
    TrialRow,
    UncountedReportRow,
)
from tests.chaos.evidence import journals
from tests.chaos.evidence.calls import Call
from tests.chaos.evidence.log_notes import is_note
from tests.chaos.evidence.mlflow_runs import ExperimentRuns, MlflowReader
from tests.chaos.evidence.snapshot import Attempt, Event, Experiment, Point, Saved, Snapshot, Trial
from tests.chaos.experiments import Planned
from tests.chaos.run import Record, had_artifacts_away
from tests.chaos.system.stack import Stack, until
from tests.chaos.user_code.numbered_lines import NUMBERED

DELETION_SECONDS = 30.0
CHARTS_SECONDS = 180.0
"""Longer than the minute after which a chart that failed is drawn again."""


def collect(stack: Stack, planned: Mapping[str, Planned], record: Record, calls: Sequence[Call] = ()) -> Snapshot:
    """Read everything. The stack must still run, for its API and MLflow."""
    deleted = {call.of for call in calls if call.what == "delete" and call.accepted}
    folders = _folders_left(stack.home.storage, deleted)
    if had_artifacts_away(record):
        _await_charts(stack.database_url)
    database = Database(stack.database_url)
    mirror = MlflowReader(stack.mlflow_url)
    with database.read() as session, httpx.Client(base_url=stack.url, timeout=30, trust_env=False) as http:
        rows = session.scalars(select(ExperimentRow).order_by(ExperimentRow.created_at)).all()
        ours = [row for row in rows if row.id in planned]
        running = select(func.count()).select_from(AttemptRow).where(AttemptRow.ended_at.is_(None))
        snapshot = Snapshot(
            experiments=[_experiment(session, http, mirror, row, planned[row.id], stack.home.storage) for row in ours],
            lines=journals.read(stack.home.journal),
            record=record,
            unplanned=[row.name for row in rows if row.id not in planned],
            active_leases=session.scalar(running) or 0,
            left=record.left,
            calls=list(calls),
            undeleted=[*folders, *(f"a row of {one}" for one in _rows_left(session, deleted))],
        )
    database.close()
    return snapshot


def _folders_left(storage: Path, deleted: Collection[str]) -> list[str]:
    """The folders of deleted experiments that the agents do not remove in time."""

    def left() -> list[str]:
        return [str(folder) for one in deleted for folder in storage.glob(f"*-{one}")]

    with contextlib.suppress(TimeoutError):
        until(lambda: not left(), "the agents have deleted the folders", DELETION_SECONDS)
    return left()


def _await_charts(database_url: str) -> None:
    """Wait until the services have drawn all charts as far as they know. The audit looks whether MLflow has them."""
    database = Database(database_url)

    def drawn() -> bool:
        with database.read() as session:
            return not charts.outdated_experiments(session, timedelta(0))

    with contextlib.suppress(TimeoutError):
        until(drawn, "all charts are drawn", CHARTS_SECONDS, every=1)
    database.close()


def _rows_left(session: Session, deleted: Collection[str]) -> list[str]:
    tables = (TrialRow, AttemptRow, EventRow)
    found = (session.scalars(select(one.experiment_id).where(one.experiment_id.in_(deleted))) for one in tables)
    return sorted({experiment for rows in found for experiment in rows})


def _experiment(
    session: Session, http: httpx.Client, mirror: MlflowReader, row: ExperimentRow, planned: Planned, storage: Path
) -> Experiment:
    runs = mirror.of(row.id, row.name)
    trials = session.scalars(select(TrialRow).where(TrialRow.experiment_id == row.id).order_by(TrialRow.number)).all()
    events = session.scalars(select(EventRow).where(EventRow.experiment_id == row.id).order_by(EventRow.seq)).all()
    shown = _pages(http, f"/v1/experiments/{row.id}/events", follow=False, limit=1000)
    return Experiment(
        id=row.id,
        name=row.name,
        spec=row.spec,
        expected=planned.expected,
        status=row.status,
        end_reason=row.end_reason,
        event_count=row.event_count,
        trials=[_trial(session, http, runs, trial, storage / f"{row.name}-{row.id}") for trial in trials],
        events=[Event(one.seq, one.kind, one.trial_id, _data(one.data), one.at.timestamp()) for one in events],
        shown_events=[
            Event(one["seq"], one["kind"], one["trial"], _data(one["data"]), _seconds(one["at"])) for one in shown
        ],
        mirror_experiments=runs.experiments,
        parents=runs.parents,
        foreign=runs.foreign({trial.id for trial in trials}),
    )


def _data(data: Mapping[str, Any]) -> dict[str, Any]:
    """An event's data with its values as a list: SQL has a list or nothing, the API has them by their metrics."""
    if "values" not in data:
        return dict(data)
    values = data["values"]
    listed = list(values.values()) if isinstance(values, dict) else list(values or [])
    named = {name: value for name, value in data.items() if name != "value"}
    return {**named, "values": [value for value in listed if value is not None]}


def _trial(session: Session, http: httpx.Client, runs: ExperimentRuns, row: TrialRow, folder: Path) -> Trial:
    reports = session.scalars(select(ReportRow).where(ReportRow.trial_id == row.id).order_by(ReportRow.step))
    attempts = session.scalars(select(AttemptRow).where(AttemptRow.trial_id == row.id).order_by(AttemptRow.number))
    decisions = session.scalars(select(DecisionRow).where(DecisionRow.trial_id == row.id).order_by(DecisionRow.id))
    saved = session.scalars(select(CheckpointRow).where(CheckpointRow.trial_id == row.id).order_by(CheckpointRow.step))
    aside = session.scalars(select(UncountedReportRow).where(UncountedReportRow.trial_id == row.id))
    shown = _pages(http, f"/v1/trials/{row.id}/reports", limit=1000)
    return Trial(
        id=row.id,
        number=row.number,
        params=row.params,
        status=row.status,
        shown_status=http.get(f"/v1/trials/{row.id}").raise_for_status().json()["status"],
        failure_kind=row.failure_kind,
        attempts=[_attempt(attempt, _log(http, attempt)) for attempt in attempts],
        curve=[Point(one.step, one.attempt, one.sequence, one.metrics, one.at.timestamp()) for one in reports],
        shown=[(one["step"], one["metrics"]) for one in shown],
        decisions=[_decision(decision) for decision in decisions],
        checkpoints=[Saved(one.step, one.attempt, one.uri, fault_of(one.uri, one.step)) for one in saved],
        mirrored=runs.of_trial(row.id),
        uncounted=[Point(one.step, one.attempt, one.sequence, one.metrics, one.at.timestamp()) for one in aside],
        stored=[str(one) for one in sorted(folder.glob(f"trial-{row.number}-attempt-*/checkpoint_2*"))],
    )


def _log(http: httpx.Client, row: AttemptRow) -> tuple[str, ...]:
    """The lines of the attempt's log that the audit reads, each with its rank."""
    text = http.get(f"/v1/trials/{row.trial_id}/logs", params={"attempt": row.number}).raise_for_status().text
    return tuple(line for line in text.splitlines() if NUMBERED.search(line) or is_note(line))


def _attempt(row: AttemptRow, log: tuple[str, ...]) -> Attempt:
    failure = row.failure or {}
    return Attempt(
        number=row.number,
        holder=row.holder,
        started_at=row.started_at.timestamp(),
        ended_at=row.ended_at.timestamp() if row.ended_at else None,
        outcome=row.outcome,
        kind=failure.get("kind"),
        message=failure.get("message"),
        resume_uri=row.resume_uri,
        resume_step=row.resume_step,
        log=log,
    )


def _decision(row: DecisionRow) -> dict[str, Any]:
    names = ("attempt", "decision", "rule", "step", "milestone", "value", "cutoff", "compared_count")
    return {name: getattr(row, name) for name in names}


def fault_of(uri: str, step: int) -> str | None:
    """Return what is wrong with a checkpoint: every rank's part must be there, complete, and of this step."""
    directory = Path(uri)
    sums = sorted(directory.glob("sum-*.json"))
    if not sums:
        return "there is no such directory" if not directory.exists() else "no rank's part is in it"
    digests = [json.loads(file.read_text()) for file in sums]
    if len(digests) != digests[0]["world_size"]:
        return f"{len(digests)} of {digests[0]['world_size']} ranks' parts are in it"
    for file, digest in zip(sums, digests, strict=True):
        part = directory / file.stem.replace("sum-", "part-")
        if not part.exists() or hashlib.sha256(part.read_bytes()).hexdigest() != digest["sha256"]:
            return f"{part.name} is not what was saved"
        if digest["step"] != step:
            return f"{part.name} is of step {digest['step']}"
    return None


def _pages(http: httpx.Client, path: str, **params: Any) -> Iterator[dict[str, Any]]:
    cursor = None
    while True:
        asked = params | ({"cursor": cursor} if cursor else {})
        page = http.get(path, params=asked).raise_for_status().json()
        yield from page["items"]
        cursor = page.get("next_cursor")
        if not cursor:
            return


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
