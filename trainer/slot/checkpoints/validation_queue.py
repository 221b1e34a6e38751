"""The validations of an attempt's checkpoints: tasks beside the training, one at a time, as in Ray Train.

A report that asks for one reaches the service when its validation has ended, with the metrics of both. So the service
knows no report, and no checkpoint, whose validation could be lost with the slot.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from trainer.worker.failures import CANNOT_START, LOST, USER_ERROR, Failure
from trainer.worker.user_process import UserProcess

logger = logging.getLogger("paceline")

CHECK_SECONDS = 0.5

ROOM_SECONDS = 60.0
"""How long a validation may wait for resources that no node has beside the workers of trials."""

PENDING, VALIDATED, FAILED, TIMED_OUT = "PENDING_VALIDATION", "VALIDATED", "VALIDATION_FAILED", "VALIDATION_TIMEOUT"
"""Values of Ray's `ReportedCheckpointStatus`."""


class Task(Protocol):
    """A validation under way."""

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after so many seconds at most."""

    def result(self, process: UserProcess | None) -> tuple[Mapping[str, Any], Failure | None]:
        """The metrics, or why there are none, once it has ended. `process` is its newest one, if any has begun."""

    def cancel(self) -> None:
        """End its process."""

    def why_no_room(self) -> str | None:
        """Why it cannot start beside the workers of trials; None if it can."""


Start = Callable[[str, Mapping[str, Any]], Task]
"""Gets the URI of the checkpoint and the function's keyword arguments."""


class ValidationOutcome(NamedTuple):
    """What became of a validation."""

    status: str = PENDING
    metrics: Mapping[str, Any] = {}
    failure: Failure | None = None


class Validations:
    """`spec` is `trainer.wire.Validation` as JSON; None: no report is validated.

    `on_end(sequence, metrics)` is called once for each report that is held, from a thread of its own, and before it
    `on_failure(message)` if its validation has failed. The methods may be called from any thread.
    """

    def __init__(
        self,
        spec: Mapping[str, Any] | None,
        start: Start,
        on_end: Callable[[int, Mapping[str, Any]], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._start = start
        self._on_end = on_end
        self._on_failure = on_failure
        self._asked: dict[int, Mapping[str, Any]] = {}
        self._saved: dict[int, tuple[str, str]] = {}
        self._held: list[int] = []
        self._found: dict[int, ValidationOutcome] = {}
        self._changed = threading.Condition()
        self._is_cancelled = self._is_training_over = False
        self._last: int | None = None
        self._process: UserProcess | None = None
        self._starts: set[str] = set()
        self._thread: threading.Thread | None = None

    # What reports.

    def ask(self, sequence: int, asked: Mapping[str, Any]) -> None:
        """The report asks for a validation, with the fields of a `ValidationTaskConfig`, or none of them."""
        if self._spec is not None:
            self._asked.setdefault(sequence, asked)

    def is_asked(self, sequence: int) -> bool:
        return sequence in self._asked

    def is_to_hold(self, sequence: int) -> bool:
        """Whether the report is to be held back until `on_end`, also after `cancel`, when that comes immediately."""
        with self._changed:
            return sequence in self._asked and not self._is_after_last(sequence)

    def hold(self, sequence: int) -> None:
        """The report counts, and is held back: `on_end` may come now."""
        with self._changed:
            self._held.append(sequence)
            self._found[sequence] = ValidationOutcome()
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="paceline-validations", daemon=True)
                self._thread.start()

    def saved(self, sequence: int, path: str, uri: str) -> None:
        """All ranks have saved the checkpoint of this report. `path` is Ray's name for it."""
        with self._changed:
            self._saved[sequence] = path, uri
            self._changed.notify_all()

    def began(self, start: str, process: UserProcess) -> bool:
        """A process of the running validation is about to call the user's function. False if this start is known."""
        if start in self._starts:
            return False
        self._starts.add(start)
        self._process = process
        return True

    def found(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """Status and metrics of each checkpoint that is to be validated, by its path."""
        with self._changed:
            return {
                self._saved[sequence][0]: (found.status, found.metrics)
                for sequence, found in self._found.items()
                if sequence in self._saved
            }

    def is_any_pending(self) -> bool:
        """Whether one of those in `found` has not ended."""
        return any(status == PENDING for status, _ in self.found().values())

    # How they end.

    def training_is_over(self) -> None:
        """No rank saves anything more: what is not saved is not validated."""
        with self._changed:
            self._is_training_over = True
            self._changed.notify_all()

    def cancel_after(self, sequence: int) -> None:
        """What was reported after this report does not count."""
        with self._changed:
            self._last = sequence
            self._changed.notify_all()

    def cancel(self) -> None:
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def why_none_succeeded(self) -> Failure | None:
        """The first failure, if there was one and no validation has succeeded."""
        failures = [found.failure for _, found in sorted(self._found.items()) if found.failure is not None]
        has_succeeded = any(found.status == VALIDATED for found in self._found.values())
        return failures[0] if failures and not has_succeeded else None

    def _is_void(self, sequence: int) -> bool:
        return self._is_cancelled or self._is_after_last(sequence)

    def _is_after_last(self, sequence: int) -> bool:
        return self._last is not None and sequence > self._last

    # The thread.

    def _work(self) -> None:
        while (sequence := self._next()) is not None:
            try:
                found = self._validate(sequence)
            except Exception as error:  # the report, and the end of the attempt, wait for it
                logger.exception("the validation of report %d fails", sequence)
                found = ValidationOutcome(FAILED, failure=Failure(LOST, f"the validation could not be run: {error}"))
            with self._changed:
                self._held.remove(sequence)
                self._found[sequence] = found
            if found.failure is not None:
                path, _ = self._saved.get(sequence, (f"of report {sequence}", ""))
                message = f"the checkpoint {path.rpartition('/')[2]} is not validated: {found.failure.message}"
                logger.warning("%s", message)
                self._on_failure(message)
            self._on_end(sequence, found.metrics)

    def _next(self) -> int | None:
        """The next report whose validation can run or will never run; None at the end."""

        def ready() -> int | None:
            is_ready = (s for s in self._held if s in self._saved or self._is_training_over or self._is_void(s))
            return next(is_ready, None)

        with self._changed:
            self._changed.wait_for(lambda: ready() is not None or self._is_cancelled or self._is_training_over)
            if (sequence := ready()) is None:
                self._thread = None  # a report that comes later is held by a new one
            return sequence

    def _validate(self, sequence: int) -> ValidationOutcome:
        if self._is_void(sequence) or sequence not in self._saved or self._spec is None:
            return ValidationOutcome(FAILED)
        asked = self._asked[sequence]
        timeout = asked["timeout_s"] if "timeout_s" in asked else self._spec["timeout_s"]
        self._process = None
        task = self._start(self._saved[sequence][1], {**self._spec["fn_kwargs"], **asked.get("fn_kwargs", {})})
        started = time.monotonic()
        while not task.wait(CHECK_SECONDS):
            waited = time.monotonic() - started
            if self._is_void(sequence):
                task.cancel()
                return ValidationOutcome(FAILED)
            if timeout is not None and waited > timeout:
                task.cancel()
                message = f"the validation took longer than its timeout_s ({timeout:g} s)"
                return ValidationOutcome(TIMED_OUT, failure=Failure(USER_ERROR, message))
            if waited > ROOM_SECONDS and (reason := task.why_no_room()) is not None:
                task.cancel()
                return ValidationOutcome(FAILED, failure=Failure(CANNOT_START, reason))
        metrics, failure = task.result(self._process)
        return ValidationOutcome(VALIDATED if failure is None else FAILED, metrics, failure)
