"""The call that ends an attempt."""

import logging
import threading
from functools import partial
from typing import Any

from trainer.client.answers import REFUSED_AS_TOO_LARGE
from trainer.client.errors import CallRefused, ServiceUnreachable
from trainer.client.filter_detector import FilterDetector, has_answer_to_heartbeat
from trainer.client.http import SYSTEM_METRICS, RepetitionLog, ServiceClient, backoff_delays

logger = logging.getLogger("paceline")

FILTERED_SECONDS = 10.0
"""How long the call gets foreign answers until it is tried without its error's text. The lease may last no longer than
that without heartbeats."""

NO_TEXT: dict[str, Any] = {
    "message": "left out, because a proxy answers calls that contain this text; the log of the slot has it",
    "traceback": None,
    "ranks": [],
}
"""These fields of a `trainer.wire.Failure`. The proxy's answer may quote what it objects to."""

NO_TRACEBACKS: dict[str, Any] = {
    "traceback": "left out, because a proxy refuses calls of this size; the log of the slot has the traceback",
    "ranks": [],
}
"""The message is short enough for any proxy."""


def post_finish(
    client: ServiceClient, trial: str, body: dict[str, Any], cancelled: threading.Event
) -> dict[str, Any] | None:
    """Send the outcome, again and again while the service is away.

    A filter on the way may answer it itself because of its error's text. Then it is sent without. If it is too large
    for a proxy although it has no samples, it is sent without tracebacks.

    Raises LeaseLost and CallRefused immediately, and ServiceUnreachable once `cancelled` is set.
    """
    path, failure, repetitions = f"/v1/trials/{trial}/finish", body.get("error"), RepetitionLog()
    detector = FilterDetector(FILTERED_SECONDS, partial(has_answer_to_heartbeat, client, trial))
    for delay in backoff_delays():
        try:
            return client.post(path, body)
        except ServiceUnreachable as error:
            repetitions.add(path, error)
            if failure is not None and detector.is_filtered(error):
                body, failure = _without(body, failure, NO_TEXT, trial, error), None
            if cancelled.wait(delay):
                raise
        except CallRefused as refused:
            if failure is None or refused.kind != REFUSED_AS_TOO_LARGE or SYSTEM_METRICS in body:
                raise
            body, failure = _without(body, failure, NO_TRACEBACKS, trial, refused), None
    raise AssertionError("backoff_delays() never ends")


def _without(
    body: dict[str, Any], failure: dict[str, Any], text: dict[str, Any], trial: str, why: Exception
) -> dict[str, Any]:
    """The body with this text in place of the failure's own, which the log gets."""
    shown = failure.get("traceback") or failure["message"]
    logger.warning("%s ends without the text of its error: %s: %s", trial, why, shown)
    return {**body, "error": {**failure, **text}}
