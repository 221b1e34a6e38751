"""Whether an MLflow server answers."""

from urllib.parse import urlsplit

import httpx

from service.cli.client import LOOPBACK
from service.settings import without_credentials

ANSWER_SECONDS = 10.0


def why_no_answer(url: str) -> str | None:
    """Return None if it answers, or else the reason, without credentials."""
    try:
        trust_env = urlsplit(url).hostname not in LOOPBACK  # a proxy cannot reach those
        httpx.get(f"{url.rstrip('/')}/health", timeout=ANSWER_SECONDS, trust_env=trust_env).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, OSError, ValueError) as error:  # as of `Client`
        return without_credentials(str(error))
    return None
