"""All that can be known of a run once it is over: plain data, for the audit to read and for tests to tamper with.

Times are seconds since the epoch.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.chaos.experiments import Expected
from tests.chaos.journals import Line
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
    """One execution of a trial."""

    number: int
    holder: str
    started_at: float
    ended_at: float | None
    outcome: str | None
    kind: str | None
    message: str | None
    resume_uri: str | None
    resume_step: int | None


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is listed. `fault` is what is wrong with its directory on disk, if anything is."""

    step: int
    attempt: int
    uri: str
    fault: str | None = None


@dataclass(frozen=True)
class MirrorRun:
    """A run in MLflow. `curves` has, of each metric, every value ever logged, as (step, value)."""

    run_id: str
    status: str
    params: dict[str, str]
    tags: dict[str, str]
    curves: dict[str, list[tuple[int, float]]]


@dataclass(frozen=True)
class Event:
    seq: int
    kind: str
    trial: str | None
    data: JsonObject
    at: float


@dataclass(frozen=True)
class Trial:
    """`curve` is what SQL has; `shown` what the API answered, as (step, metrics).

    `stored` are the checkpoints on disk, of all of its attempts, known and whole or not.
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
    mirrored: list[MirrorRun]
    stored: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """`shown_events` are the API's; `parents` MLflow's runs that stand for the whole; `foreign` those for nothing."""

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
    parents: list[MirrorRun]
    foreign: list[MirrorRun]


@dataclass(frozen=True)
class Snapshot:
    """`strangers` are experiments that nobody of us submitted; `left` what still ran at the end."""

    experiments: list[Experiment]
    lines: list[Line]
    record: Record
    strangers: list[str] = field(default_factory=list)
    living_leases: int = 0
    left: list[str] = field(default_factory=list)
