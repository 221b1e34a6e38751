"""What the main thread of a command's rank has to do, from all other threads."""

import threading
from collections import deque
from dataclasses import dataclass

from trainer.decisions import STOP
from trainer.worker.commands.command_metrics import CommandReport

MAX_WAITING_REPORTS = 100
"""A command that reports faster than the service answers has to wait, as a training function does."""


@dataclass(frozen=True)
class Exited:
    """The rank's own process has ended, and all that it reported was handed over."""

    code: int


@dataclass(frozen=True)
class Shared:
    """What rank 0 says that comes next."""

    next: str


@dataclass(frozen=True)
class Failed:
    """What the command writes can no longer be read: the attempt ends with the error."""

    error: Exception


Message = CommandReport | Exited | Shared | Failed


class Inbox:
    """The messages that wait for the main thread. After `close`, what comes is dropped.

    Once it is full, what comes waits until half of it is done. So the readers of the command's output catch up with the
    command, and see again which line a state belongs to.
    """

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._changed = threading.Condition()
        self._is_full = self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def put(self, message: Message) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._is_full)
            if not self._is_closed:
                self._messages.append(message)
                self._is_full = len(self._messages) >= MAX_WAITING_REPORTS
                self._changed.notify_all()
                return
        answer(message, STOP)

    def get(self, seconds: float | None = None) -> Message | None:
        """None if nothing came in this time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._messages, seconds):
                return None
            message = self._messages.popleft()
            self._is_full = self._is_full and len(self._messages) > MAX_WAITING_REPORTS // 2
            self._changed.notify_all()
            return message

    def has_report(self) -> bool:
        with self._changed:
            return any(isinstance(message, CommandReport) for message in self._messages)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            left, self._messages = self._messages, deque()
        for message in left:
            answer(message, STOP)


def answer(message: Message, decision: str) -> None:
    """Answer the call that the message came by, if it did and has no answer yet."""
    if isinstance(message, CommandReport) and message.decision is not None and not message.decision.done():
        message.decision.set_result(decision)
