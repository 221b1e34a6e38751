"""An attempt against a service, with the test in the place of its workers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.trainer.conftest import until
from tests.trainer.fake_service import FakeService
from trainer.client.addresses import ServiceAddresses
from trainer.slot.assignment import Assignment
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt.attempt_state import State
from trainer.slot.attempt.outcome import AttemptOutcome
from trainer.wire import Finish
from trainer.worker.failures import Failure
from trainer.worker.messages import RankReport, WorkerStarted
from trainer.worker.user_process import UserProcess

STARTED = WorkerStarted(
    actor=None, node="n", pid=1, placement_group=None, log_positions={}, oom_counter=None, oom_kills=None
)
SECONDS = 240


class CountingRunner:
    """It has no workers, and counts how often they are to end."""

    placement_group = None

    def __init__(self) -> None:
        self.ended_count = 0
        self.is_ending = False
        self.group: dict[int, Any] = {}
        self.announced: list[Mapping[str, Sequence[int]]] = []
        self.called: list[Callable[[], object]] = []

    def worker_started(self, actor: Any) -> None:
        pass

    def actors(self) -> dict[int, Any]:
        return self.group

    async def announce_preemption(self, ranks: Mapping[str, Sequence[int]], _seconds: float) -> None:
        self.announced.append(ranks)

    def call_in_workers(self, function: Callable[[], object]) -> None:
        self.called.append(function)

    def wake(self, *, ending: bool = False) -> None:
        self.is_ending = self.is_ending or ending

    def end_workers(self) -> None:
        self.ended_count += 1


class PlayedValidation:
    """A validation that ends when the test says so."""

    def __init__(self, uri: str, fn_kwargs: dict[str, Any]) -> None:
        self.uri, self.fn_kwargs = uri, fn_kwargs
        self.is_cancelled = False
        self.process: UserProcess | None = None
        self.reacts_to_cancel = threading.Event()
        self.reacts_to_cancel.set()
        self._ended = threading.Event()
        self._result: tuple[dict[str, Any], Failure | None] = {}, None

    def end(self, failure: Failure | None = None, **metrics: Any) -> None:
        self._result = metrics, failure
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        return self._ended.wait(min(seconds, 0.01))

    def result(self, process: UserProcess | None) -> tuple[dict[str, Any], Failure | None]:
        self.process = process
        return self._result

    def cancel(self) -> None:
        self.is_cancelled = True
        self.reacts_to_cancel.wait()

    def why_no_room(self) -> str | None:
        return "no node has room"


class Played:
    """An attempt of one rank, which the test plays."""

    def __init__(
        self,
        service: FakeService,
        scaling: dict[str, Any] | None = None,
        validation: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        self.service = service
        trainer = {"entrypoint": "train:train_fn", "scaling": scaling or {}, "validation": validation}
        self.trial = service.add_trial(trainer, **fields)
        self.runner = CountingRunner()
        runner: Any = self.runner
        assignment = Assignment.from_json(service.assign(self.trial))
        self.removed: list[str] = []
        self.validations: list[PlayedValidation] = []
        self.attempt = Attempt(
            assignment,
            ServiceAddresses(service.url),
            asyncio.get_running_loop(),
            runner,
            self.removed.append,
            self.start_validation,
        )
        self._orders: list[type[State]] = []
        move = self.attempt.state.move

        def remember(to: State) -> bool:
            self._orders += [type(to)] * (moved := move(to))
            return moved

        self.attempt.state.move = remember  # type: ignore[method-assign]

    def start_validation(self, uri: str, fn_kwargs: Mapping[str, Any]) -> PlayedValidation:
        self.validations.append(PlayedValidation(uri, dict(fn_kwargs)))
        return self.validations[-1]

    async def report_for_validation(self, sequence: int, **asked: Any) -> str:
        """A report whose checkpoint is saved, and is to be validated."""
        path = f"{self.attempt.run_name}/c{sequence}"
        self.attempt.checkpoint_saved(sequence, path)
        report = RankReport(sequence, 0, 1, {"loss": float(sequence)}, path, validation=asked)
        return await self.attempt.report(report)

    async def validation(self, number: int) -> PlayedValidation:
        """The validation that starts as this one, from 0."""
        await asyncio.to_thread(until, lambda: len(self.validations) > number, f"validation {number} starts", SECONDS)
        return self.validations[number]

    async def report(self, sequence: int, checkpoint: str | None = None) -> str:
        return await self.attempt.barrier.report(RankReport(sequence, 0, 1, {"loss": 1.0}, checkpoint))

    async def comes_to(self, state: type[State]) -> None:
        """It may have moved on already."""
        await asyncio.to_thread(until, lambda: state in self._orders, f"it comes to {state.__name__}", SECONDS)

    async def conclude(self) -> AttemptOutcome | None:
        return await asyncio.to_thread(self.attempt.conclude, None, lambda _rank: ("", None, None))

    async def finish(self, outcome: AttemptOutcome) -> None:
        await asyncio.to_thread(lambda: self.attempt.finish(outcome, wants_next=False))

    async def finished(self) -> Finish:
        """Its end, as the service gets it."""
        outcome = await self.conclude()
        assert outcome is not None
        await self.finish(outcome)
        return self.service.finishes[self.trial]


@asynccontextmanager
async def played(storage: Path, **fields: Any) -> AsyncIterator[Played]:
    with FakeService(str(storage)).serving() as service:
        one = Played(service, **fields)
        one.attempt.start()
        one.attempt.worker_started(0, STARTED)
        yield one
        await one.conclude()


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())
