"""Everything that is known of a run after its end: plain data, which the audit reads and tests tamper with.

Times are seconds since the epoch.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.chaos.evidence.calls import Call
from tests.chaos.evidence.journals import Line
from tests.chaos.experiments import Expected
from tests.chaos.run import Record

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """A point of a trial's curve."""

    step: int
    attempt: int
    sequence: int
    metrics: JsonObject
    at: float


@dataclass(frozen=True)
class Attempt:
    """One execution of a trial. `log` has the numbered lines of its log in the API, and the notes of the service."""

    number: int
    holder: str
    started_at: float
    ended_at: float | None
    outcome: str | None
    kind: str | None
    message: str | None
    resume_uri: str | None
    resume_step: int | None
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Saved:
    """A checkpoint in the database. `fault` is what is wrong with its directory on disk, if anything is."""

    step: int
    attempt: int
    uri: str
    fault: str | None = None


@dataclass(frozen=True)
class MlflowRun:
    """A run in MLflow. `curves` has for each metric all logged values as (step, value).

    `charts` are the sizes of the charts among the artifacts of a parent run, by name.
    """

    run_id: str
    status: str
    params: dict[str, str]
    tags: dict[str, str]
    curves: dict[str, list[tuple[int, float]]]
    charts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    seq: int
    kind: str
    trial: str | None
    data: JsonObject
    at: float


@dataclass(frozen=True)
class Trial:
    """`curve` is from SQL; `shown` is from the API, as (step, metrics).

    `uncounted` are reports that were set aside, because they came after the one that ended their attempt. `stored` are
    the checkpoint directories on disk of all its attempts, complete or not.
    """

    id: str
    number: int
    params: JsonObject
    status: str
    shown_status: str
    failure_kind: str | None
    attempts: list[Attempt]
    curve: list[Point]
    shown: list[tuple[int, JsonObject]]
    decisions: list[JsonObject]
    checkpoints: list[Saved]
    mirrored: list[MlflowRun]
    stored: list[str] = field(default_factory=list)
    uncounted: list[Point] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """`shown_events` are from the API; `parents` are MLflow's parent runs; `foreign` are runs of no trial."""

    id: str
    name: str
    spec: JsonObject
    expected: Expected
    status: str
    end_reason: str | None
    event_count: int
    trials: list[Trial]
    events: list[Event]
    shown_events: list[Event]
    mirror_experiments: int
    parents: list[MlflowRun]
    foreign: list[MlflowRun]


@dataclass(frozen=True)
class Snapshot:
    """`unplanned` are experiments that the load did not submit; `left` are processes that still ran at the end.

    `calls` are those of the user; `undeleted` is what is left of experiments that the user has deleted.
    """

    experiments: list[Experiment]
    lines: list[Line]
    record: Record
    unplanned: list[str] = field(default_factory=list)
    active_leases: int = 0
    left: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    undeleted: list[str] = field(default_factory=list)
