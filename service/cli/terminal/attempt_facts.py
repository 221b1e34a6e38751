"""One attempt for the terminal: how it went, where, and its error."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.markup import escape

from service.domain.attempt_holders import describe_holder, is_caller

Json = dict[str, Any]


def attempt_facts(attempt: Json, now: datetime) -> Iterator[tuple[str, str]]:
    error = attempt["error"] or {}
    went = _ended(attempt, error.get("kind")) if attempt["outcome"] else _progress(attempt, now)
    yield f"attempt {attempt['number']}", escape(went)
    if attempt["resumed_from"]:
        yield "resumed from", escape(f"{attempt['resumed_from']} (step {attempt['resumed_step']})")
    elif attempt["number"] > 1:
        yield "resumed from", "nothing: there was no checkpoint, so it started from the beginning"
    if error:
        yield "error", escape(error["message"])
    if error.get("traceback"):
        yield "traceback", escape(error["traceback"].rstrip())


def _ended(attempt: Json, failure: str | None) -> str:
    outcome = attempt["outcome"]
    if outcome == "stopped" and not is_caller(attempt["agent"]):
        outcome = "stopped as asked"
    if failure is not None:
        outcome = f"failed: {failure}" if outcome == "failed" else f"{outcome}, but failed: {failure}"
    return f"{outcome}, {_where(attempt)}"


def _progress(attempt: Json, now: datetime) -> str:
    """The progress of an attempt that has not ended. A start takes minutes where packages are installed."""
    last = attempt["last_report_at"]
    if not (last or attempt.get("began_at") or is_caller(attempt["agent"])):
        return (
            f"starting for {_since(attempt['started_at'], now)}, {_where(attempt)}: its workers have not called the "
            "training function yet (Ray may be installing trainer.runtime_env)"
        )
    reported = f"last report {_since(last, now)} ago" if last else "no report yet"
    running = _since(attempt.get("began_at") or attempt["started_at"], now)
    return f"running for {running}, {reported}, {_where(attempt)}"


def _where(attempt: Json) -> str:
    holder = attempt["agent"]
    return f"run by {describe_holder(holder)}" if is_caller(holder) else f"on agent {holder}"


def _since(at: str, now: datetime) -> str:
    """`40 s`, `12 min`, `3 h 5 min`. The service's clock may be ahead of this machine's."""
    seconds = max(0, int((now - datetime.fromisoformat(at)).total_seconds()))
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
