"""How an attempt ended, by what is known of it in the end. Pure: it calls neither Ray nor the service."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trainer.slot.attempt.attempt_state import (
    Abandoned,
    Draining,
    Killed,
    Preempted,
    Refused,
    Resizing,
    State,
    Stopping,
    Stuck,
)
from trainer.slot.attempt.failure_classification import describe_ranks, killed_by_kernel, to_json
from trainer.slot.attempt.ranks import Ranks
from trainer.worker.failures import LOST, OUT_OF_MEMORY, PREEMPTED, USER_ERROR, Failure

COMPLETED = "completed"
NODE_LEFT = "a node of the elastic group has left"
NODE_WITHHELD = "the trial starts again where there is room"
AGENT_SHUT_DOWN = "the agent was shut down and gave the attempt back"


@dataclass(frozen=True)
class AttemptOutcome:
    """The body of `finish`. `status` is a value of `trainer.wire.Outcome`; a failed one has a `failure`."""

    status: str
    began: bool
    failure: Failure | None = None

    @classmethod
    def failed(cls, failure: Failure, *, began: bool) -> "AttemptOutcome":
        return cls("failed", began, failure)

    @property
    def is_lost(self) -> bool:
        return self.failure is not None and self.failure.kind == LOST

    @property
    def is_start_given_back(self) -> bool:
        """Whether no worker of it ran, through no fault of its own: others may have taken the resources."""
        return self.failure is not None and self.failure.kind == PREEMPTED and not self.began

    @property
    def is_lost_start(self) -> bool:
        """Whether Ray lost the attempt before any worker of it ran."""
        return self.is_lost and not self.began

    def to_json(self) -> dict[str, Any]:
        if self.failure is None:
            return {"outcome": self.status}
        return {"outcome": self.status, "error": to_json(self.failure, began=self.began)}


@dataclass(frozen=True)
class End:
    """What is known at the end of an attempt.

    `error` is what Ray Train raised, `classify(error)` what that means; `is_drained`: one of its nodes is drained.
    `is_elastic`: its worker group may have another size the next time.
    `trained_past_decision`: the service decided to stop it at a report after which the ranks, without an answer, had
    trained on. What they did then does not count. `failed_validation`: why no validation has succeeded, if some failed.
    """

    state: State
    ranks: Ranks
    is_drained: bool
    is_elastic: bool
    trained_past_decision: bool
    failed_validation: Failure | None
    error: BaseException | None
    classify: Callable[[BaseException], Failure]

    @property
    def has_lost_node(self) -> bool:
        """Whether the group has lost a node. Its death may be known only from its silence."""
        return bool(self.ranks.lost_nodes)

    @property
    def was_never_tried(self) -> bool:
        """Whether it was to stop before the slot gave it to Ray."""
        return isinstance(self.state, Stopping) and not self.ranks.started and self.error is None


def outcome_of(end: End) -> AttemptOutcome:
    began = bool(end.ranks.started or end.ranks.ended)  # Ray may deliver a later message before an earlier one
    ordered = _failure_by_order(end)
    if ordered is not None:
        return AttemptOutcome.failed(ordered, began=began)
    if isinstance(end.state, Killed) or end.ranks.have_stopped or end.trained_past_decision or end.was_never_tried:
        return AttemptOutcome("stopped", began)
    failure = _own_failure(end)
    if failure is None:
        return AttemptOutcome(COMPLETED, began)
    if failure.kind == LOST and end.is_drained:
        failure = replace(failure, kind=PREEMPTED)
    if failure.kind == LOST and failure.is_of_node_disk and failure.is_at_start:
        failure = replace(failure, kind=PREEMPTED, message=f"{failure.message}; {NODE_WITHHELD}")
    if failure.kind == LOST and end.is_elastic and end.has_lost_node:
        failure = replace(failure, kind=PREEMPTED, message=f"{NODE_LEFT}: {failure.message}")
    return AttemptOutcome.failed(failure, began=began)


def _failure_by_order(end: End) -> Failure | None:
    """The failure of an attempt that was ended from outside, whatever its ranks did meanwhile."""
    match end.state:
        case Refused(failure=failure) | Stuck(failure=failure) | Abandoned(failure=failure):
            return failure
        case Preempted():
            return Failure(PREEMPTED, _why_preempted(end))
        case Draining() if end.ranks.have_stopped:
            return Failure(PREEMPTED, _why_preempted(end))
        case Resizing(workers=count) if end.ranks.have_stopped:
            sizes = f"from {end.ranks.world_size} to {count} worker{'s' * (count != 1)}"
            return Failure(PREEMPTED, f"the elastic group is resized {sizes}; the trial continues from its checkpoint")
        case _:
            return None


def _why_preempted(end: End) -> str:
    how = "stopped at its next report" if end.ranks.have_stopped else "was ended"
    return f"a node was drained; the attempt {how}, to continue elsewhere" if end.is_drained else AGENT_SHUT_DOWN


def _own_failure(end: End) -> Failure | None:
    failures = end.ranks.failures
    if (own_end := _own_end(end, failures)) is not None:
        return own_end
    if failures and (end.ranks.dead or end.has_lost_node):
        return _failure_after_death(end, failures)
    if failures:
        return _first_failure(failures)
    if end.error is not None:
        return end.classify(end.error)
    if end.ranks.have_all_ended:
        return end.failed_validation
    return Failure(LOST, "the workers ended without reporting a result")


def _own_end(end: End, failures: dict[int, Failure]) -> Failure | None:
    """The failure of an attempt that failed because a worker process has ended itself.

    A process may also end itself because another one was killed, or has failed, before, or because a node has vanished.
    """
    own_ends, died_first = end.ranks.own_ends, _died_first(end)
    is_consequence = not died_first <= own_ends.keys() if died_first else bool(failures)
    if not own_ends or is_consequence or end.has_lost_node or end.ranks.has_oom_kill:
        return None
    rank, own_end = min((rank, one) for rank, one in own_ends.items() if rank in (died_first or own_ends))
    message, output = own_end.describe(f"the worker process of rank {rank}")
    return Failure(USER_ERROR, message, output or None, _tracebacks(failures))


def _died_first(end: End) -> set[int]:
    """The ranks whose processes were dead when the failure of the attempt was noticed."""
    failed = {*getattr(end.error, "worker_failures", {}), *end.ranks.dead}
    return failed - end.ranks.ended.keys()


def _failure_after_death(end: End, failures: dict[int, Failure]) -> Failure:
    """A worker died, and the others failed because of that."""
    cause = end.classify(end.error) if end.error is not None else None
    if cause is not None and cause.kind in (OUT_OF_MEMORY, PREEMPTED):
        return cause
    first = _first_failure(failures)
    ranks = describe_ranks(end.ranks.dead or end.ranks.silent)
    if end.ranks.has_oom_kill:
        killed = killed_by_kernel(f" ({ranks})", first.traceback)
        return replace(killed, rank_tracebacks=first.rank_tracebacks)
    return replace(first, kind=LOST, message=f"the worker of {ranks} died, after which another failed: {first.message}")


def _first_failure(failures: dict[int, Failure]) -> Failure:
    """The failure of the rank that failed first, with the tracebacks of all."""
    first = next(iter(failures.values()))
    return replace(first, rank_tracebacks=_tracebacks(failures))


def _tracebacks(failures: dict[int, Failure]) -> dict[int, str]:
    return {rank: one.traceback or "" for rank, one in sorted(failures.items())}
