"""What a worker reports to its slot about itself.

The messages cross Ray as plain fields: a class that is pickled by value would travel with each of them.
"""

from dataclasses import dataclass, field
from typing import Any

from trainer.worker.failures import Failure


@dataclass(frozen=True)
class WorkerStarted:
    """A rank's process is ready to run the user's code.

    `log_positions` has how far each of its output files has been read. `oom_kills` is the count of the file
    `oom_counter`, if there is one. `exit_file`: where the process leaves its exit code, if it can.
    `working_directory`: that of the run on its node, if the process uses it. `gpus` are those that it may use, by index
    or UUID.
    """

    actor: Any
    node: str
    pid: int
    placement_group: str | None
    log_positions: dict[str, int]
    oom_counter: str | None
    oom_kills: int | None
    exit_file: str | None = None
    working_directory: str | None = None
    gpus: list[str] = field(default_factory=list)

    def to_fields(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class RankReport:
    """One rank's report. Rank 0 alone has `metrics`; `checkpoint` is the path of one that the rank has saved already.

    `times` are those of `PhaseTimes.so_far`. `files` has the sizes of the files that the rank saves, None if they are
    not known. `validation`: how the checkpoint is to be validated, as in `Validations.ask`. That of rank 0 counts.
    """

    sequence: int
    rank: int
    world_size: int
    metrics: dict[str, Any] | None
    checkpoint: str | None
    times: dict[str, float] = field(default_factory=dict)
    files: dict[str, int] | None = None
    validation: dict[str, Any] | None = None

    def to_fields(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class WorkerEnded:
    """The training function of a rank has ended.

    `has_stopped`: it left `ray.train.report()` because the attempt was to stop. `not_reusable`: why the worker's
    process cannot serve another attempt, if it cannot. `times` are those of `PhaseTimes.at_end`.
    """

    has_stopped: bool = False
    failure: Failure | None = None
    not_reusable: str | None = None
    times: dict[str, float] = field(default_factory=dict)

    def to_fields(self) -> dict[str, Any]:
        return {**vars(self), "failure": vars(self.failure) if self.failure is not None else None}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> "WorkerEnded":
        failure = fields["failure"]
        return cls(**{**fields, "failure": Failure(**failure) if failure is not None else None})
