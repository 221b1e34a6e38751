"""Whether an MLflow server answers."""

from urllib.parse import urlsplit

import httpx

from service.cli.client.client import LOOPBACK
from service.settings import without_credentials
from trainer.process_log.foreign_answers import EXCERPT

ANSWER_SECONDS = 10.0
HEALTHY = "OK"
"""MLflow's answer."""


def why_no_answer(url: str) -> str | None:
    """Return None if it answers, or else the reason, without credentials."""
    try:
        trust_env = urlsplit(url).hostname not in LOOPBACK  # a proxy cannot reach those
        answer = httpx.get(f"{url.rstrip('/')}/health", timeout=ANSWER_SECONDS, trust_env=trust_env).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, OSError, ValueError) as error:  # as of `Client`
        return without_credentials(str(error))
    if answer.text.strip() == HEALTHY:
        return None
    return f"another program answers there, with {answer.status_code} and {_beginning(answer.text) or 'an empty body'}"


def _beginning(body: str) -> str:
    return " ".join(body[:EXCERPT].split())
