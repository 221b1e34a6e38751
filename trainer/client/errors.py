"""What a call to the service may raise.

ServiceUnreachable: the same call may succeed later
├── ForeignAnswer, ServiceDiskFull, AnswerLate, DamagedPackage
CallRefused: the service's verdict
└── LeaseLost, AgentNameTaken, ServiceFailed
"""

from typing import Any

from trainer.process_log.redaction import redacted


class ServiceUnreachable(Exception):
    """No answer of the service's own, or one that asks to try later: the same call may succeed.

    The message may become the error of an attempt, which the service shows: a password in an address is left out.
    """

    def __init__(self, message: str) -> None:
        super().__init__(redacted(message))


class ForeignAnswer(ServiceUnreachable):
    """Another program has answered, as a proxy or the page of a login, or one whose certificate is not trusted.

    People are to see it, because it may last until they change something.
    """


class DamagedPackage(ServiceUnreachable):
    """A package has come whose bytes are not those of its id: the service's file is damaged, or what came of it."""


class ServiceDiskFull(ServiceUnreachable):
    """The service has no room for what the call would store."""


class AnswerLate(ServiceUnreachable):
    """No answer in time, although there is a connection."""


class CallRefused(Exception):
    """The service understood the call and refused it: the same call would be refused again."""

    def __init__(self, status: int, kind: str, detail: str, facts: dict[str, Any] | None = None) -> None:
        super().__init__(f"{status} {kind}: {detail}")
        self.status, self.kind, self.detail, self.facts = status, kind, detail, facts or {}


class LeaseLost(CallRefused):
    """The trial has another holder, or has ended, or is deleted."""


class AgentNameTaken(CallRefused):
    """Another process uses this agent's name: `facts["holder"]`, as `trainer.wire.Instance`."""


class ServiceFailed(CallRefused):
    """The service itself failed at the call (500) at every try."""
