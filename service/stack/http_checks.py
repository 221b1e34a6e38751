"""What the stack asks its parts over HTTP: whether they answer, and whether the agent is connected."""

from collections.abc import Mapping
from datetime import UTC, datetime

import httpx

AGENT_NAME = "local"
CHECK_TIMEOUT_SECONDS = 2


class AgentCheck:
    """Whether the service at `url` has heard from the stack's agent after the agent's newest start.

    `token` is the access token for that call, if it needs one. A time after the start by this machine's clock counts
    immediately; otherwise a time that changes does, since the clock may be set back while the stack starts.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = f"{url}/v1/agents?limit=1000"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.starts()

    def starts(self) -> None:
        """The agent is being started: what the service has heard before does not count."""
        self._started_at = datetime.now(UTC)
        self._seen_at_first: list[datetime] | None = None

    def is_connected(self) -> bool:
        seen = self._seen()
        if seen is None:
            return False
        if self._seen_at_first is None:
            self._seen_at_first = seen
        is_after_start = any(self._started_at < each <= datetime.now(UTC) for each in seen)
        return is_after_start or seen != self._seen_at_first

    def _seen(self) -> list[datetime] | None:
        """When the service heard from the agent: one time, or none. None while the service does not answer."""
        try:
            answer = _get(self._url, self._headers)
        except httpx.TransportError:
            return None
        if not answer.is_success:
            return None
        agents = answer.json()["items"]
        return [datetime.fromisoformat(one["last_seen_at"]) for one in agents if one["name"] == AGENT_NAME]


def answers(url: str) -> bool:
    """Whether a call succeeds. Returns False after CHECK_TIMEOUT_SECONDS."""
    try:
        return _get(url).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _get(url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """Call a component on this machine. `verify=False` saves loading certificates, which takes longer than the call."""
    return httpx.get(url, headers=headers, timeout=CHECK_TIMEOUT_SECONDS, trust_env=False, verify=False)  # noqa: S501
