"""What the stack asks its parts over HTTP: whether they answer, and whether the agent is connected."""

from collections.abc import Mapping
from datetime import UTC, datetime

import httpx

AGENT_NAME = "local"
CHECK_TIMEOUT_SECONDS = 2


class AgentCheck:
    """Whether the service at `url` has heard from the stack's agent after the agent's newest start.

    `token` is the access token for that call, if it needs one.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = f"{url}/v1/agents?limit=1000"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.starts()

    def starts(self) -> None:
        """The agent is being started: what the service has heard before does not count."""
        self._started_at = datetime.now(UTC)

    def is_connected(self) -> bool:
        try:
            answer = _get(self._url, self._headers)
        except httpx.TransportError:
            return False
        agents = answer.json()["items"] if answer.is_success else []
        seen = [datetime.fromisoformat(one["last_seen_at"]) for one in agents if one["name"] == AGENT_NAME]
        return any(each > self._started_at for each in seen)


def answers(url: str) -> bool:
    """Whether a call succeeds. Returns False after CHECK_TIMEOUT_SECONDS."""
    try:
        return _get(url).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _get(url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """Call a component on this machine. `verify=False` saves loading certificates, which takes longer than the call."""
    return httpx.get(url, headers=headers, timeout=CHECK_TIMEOUT_SECONDS, trust_env=False, verify=False)  # noqa: S501
