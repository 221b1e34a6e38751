"""The messages of the workers, and of a controller of their own, to their slot about its running attempt only."""

from typing import Any

from trainer.decisions import STOP
from trainer.ray_train.actor_call_retries import at_least_once
from trainer.ray_train.runners import WarmRunner
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt_executor import AttemptExecutor
from trainer.worker.failures import Failure
from trainer.worker.messages import RankReport, WorkerEnded
from trainer.worker.user_process import UserProcess


class WorkerMessageHandlers:
    """The part of a slot's actor that passes messages on. `run` names the attempt: a late message is ignored."""

    def __init__(self, executor: AttemptExecutor) -> None:
        self._executor = executor

    @property
    def _attempt(self) -> Attempt | None:
        return self._executor.attempt

    def _attempt_of(self, run: str) -> Attempt | None:
        attempt = self._attempt
        return attempt if attempt is not None and attempt.run_name == run else None

    @at_least_once
    async def controller_started(self, run: str, actor: Any) -> None:
        if (attempt := self._attempt_of(run)) is not None:
            attempt.controller_started(actor)

    @at_least_once
    async def function_began(self, run: str) -> None:
        if (attempt := self._attempt_of(run)) is not None:
            attempt.function_began()

    @at_least_once
    async def unused_checkpoint_name(self, run: str, sequence: int, name: str) -> str:
        attempt = self._attempt_of(run)
        return attempt.checkpoints.unused_name(sequence, name) if attempt is not None else name

    @at_least_once
    async def report(self, run: str, fields: dict[str, Any]) -> str:
        attempt = self._attempt_of(run)
        return await attempt.report(RankReport(**fields)) if attempt is not None else STOP

    @at_least_once
    async def all_gather(self, run: str, number: int, rank: int, world_size: int, value: Any) -> list[Any]:
        attempt = self._attempt_of(run)
        return await attempt.all_gather(number, rank, world_size, value) if attempt is not None else []

    @at_least_once
    async def validation_began(self, run: str, start: str, process: dict[str, Any]) -> int:
        """`start` is unique: a repetition has the same."""
        attempt = self._attempt_of(run)
        return attempt.validation_began(start, UserProcess(**process)) if attempt is not None else 0

    @at_least_once
    async def validated(self, run: str, waits: bool, seconds: float | None) -> dict[str, Any]:
        attempt = self._attempt_of(run)
        return await attempt.validated(seconds if waits else 0) if attempt is not None else {}

    @at_least_once
    async def log(self, run: str, rank: int, offset: int, text: str, positions: dict[str, int]) -> None:
        """Accepts the output immediately; returns when the rank may send more."""
        if (attempt := self._attempt_of(run)) is not None:
            attempt.logs.add(rank, offset, text, positions)
            await attempt.logs.room()

    @at_least_once
    async def oom_kills_seen(self, run: str, rank: int, kills: int | None) -> None:
        if (attempt := self._attempt_of(run)) is not None:
            attempt.ranks.survived_oom_kills(rank, kills)

    async def system_metrics(
        self, run: str, rank: int, node: int | None, load: dict[str, float], gpus: list[dict[str, Any]]
    ) -> None:
        """Called once: a lost sample leaves a small gap in a curve, and one that is sent again would count twice."""
        if (attempt := self._attempt_of(run)) is not None:
            attempt.system_sampled(rank, node, load, gpus)

    @at_least_once
    async def worker_failed(self, run: str, rank: int, failure: dict[str, Any]) -> None:
        if (attempt := self._attempt_of(run)) is not None:
            await attempt.worker_failed(rank, Failure(**failure))

    @at_least_once
    async def worker_ended(self, run: str, rank: int, fields: dict[str, Any]) -> None:
        if (attempt := self._attempt_of(run)) is not None:
            await attempt.worker_ended(rank, WorkerEnded.from_fields(fields))

    @at_least_once
    async def secrets(self, run: str) -> dict[str, str]:
        """The values that the workers of the running attempt get as environment variables."""
        return self._executor.secrets if self._attempt_of(run) is not None else {}

    @at_least_once
    async def checkpoint_saved(self, run: str, sequence: int, path: str) -> None:
        self._checkpoint_saved(run, sequence, path)

    @at_least_once
    async def get_all_reported_checkpoints(self, *args: Any) -> Any:
        """Called by Ray Train's `get_all_reported_checkpoints()` in a worker whose controller runs here."""
        runner = self._executor.runner
        return await runner.reported_checkpoints(*args) if isinstance(runner, WarmRunner) else []

    def _checkpoint_saved(self, run: str, sequence: int, path: str) -> None:
        if (attempt := self._attempt_of(run)) is not None:
            attempt.checkpoint_saved(sequence, path)
