"""Whether an MLflow server answers."""

import httpx

from service.settings import without_password

ANSWER_SECONDS = 10.0


def why_no_answer(url: str) -> str | None:
    """Return None if it answers, or else the reason, without a password."""
    try:
        httpx.get(f"{url.rstrip('/')}/health", timeout=ANSWER_SECONDS).raise_for_status()
    except httpx.HTTPError as error:
        return without_password(str(error))
    return None
