"""The HTTP API from Python, as the command line uses it: thin, and every error fit to be shown."""

import json
from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from service.cli.code_archive import Code

TIMEOUT_SECONDS = 30
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class Unreachable(Exception):
    """No service answers there."""

    def __init__(self, url: str, error: Exception) -> None:
        super().__init__(f"no service answers at {url} ({error}); start it with `paceline up`, or set PACELINE_URL")


class Refused(Exception):
    """The service's answer was an error; `problem` is its problem+json body."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem.get("detail") or problem.get("title"))
        self.problem = problem

    @property
    def type(self) -> str:
        return str(self.problem.get("type", ""))

    def lines(self) -> list[str]:
        """Every mistake on its own line, with its path; else the detail."""
        mistakes = [
            f"{error['path']}: {error['message']}".removeprefix(": ") for error in self.problem.get("errors", [])
        ]
        return mistakes or [str(self)]


class Client:
    """Raises Unreachable and Refused from every call. Only a service that asks for one needs a `token`."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # A proxy for the outside world cannot reach this machine's own addresses.
        trust_env = urlsplit(self.url).hostname not in LOOPBACK
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=trust_env)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def submit(self, spec: bytes, code: Code | None) -> dict[str, Any]:
        files = {"spec": ("spec.yaml", spec, "application/yaml")}
        if code:
            files["code"] = (code.filename, code.content, "application/octet-stream")
        return self._json("POST", "/v1/experiments", files=files)

    def experiments(self, status: str | None = None) -> Iterator[dict[str, Any]]:
        return self._pages("/v1/experiments", {"status": status} if status else {})

    def experiment(self, name: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/experiments/{name}")

    def trials(self, experiment: str) -> Iterator[dict[str, Any]]:
        return self._pages(f"/v1/experiments/{experiment}/trials", {})

    def events(self, experiment: str, after: int) -> Iterator[dict[str, Any]]:
        """Yield the events that follow number `after`, to the newest."""
        return self._pages(f"/v1/experiments/{experiment}/events", {"follow": False, "after": after, "limit": 1000})

    def agents(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("GET", "/v1/agents")
        return found

    def best(self, experiment: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/experiments/{experiment}/best")

    def stop_experiment(self, experiment: str, *, cancel: bool = False) -> dict[str, Any]:
        return self._json("POST", f"/v1/experiments/{experiment}/{'cancel' if cancel else 'stop'}")

    def change(self, experiment: str, patch: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/merge-patch+json"}
        return self._json("PATCH", f"/v1/experiments/{experiment}", content=json.dumps(patch), headers=headers)

    def enqueue(self, experiment: str, document: bytes) -> list[dict[str, Any]]:
        """Send a configuration or a list of them, in JSON or YAML, and return their trials."""
        headers = {"Content-Type": "application/yaml"}
        made = self._json("POST", f"/v1/experiments/{experiment}/trials", content=document, headers=headers)
        trials: list[dict[str, Any]] = made.get("items", [made])
        return trials

    def retry_trial(self, trial: str) -> dict[str, Any]:
        return self._json("POST", f"/v1/trials/{trial}/retry")

    def stop_trial(self, trial: str) -> dict[str, Any]:
        return self._json("POST", f"/v1/trials/{trial}/stop")

    def logs(self, trial: str, rank: int | None, tail: int | None, *, follow: bool) -> Iterator[str]:
        """Yield pieces of text; with `follow`, until the trial has ended."""
        params = {"rank": rank, "tail": tail, "follow": follow or None}
        chosen = {name: value for name, value in params.items() if value is not None}
        timeout = httpx.Timeout(TIMEOUT_SECONDS, read=None)
        try:
            with self._http.stream("GET", f"/v1/trials/{trial}/logs", params=chosen, timeout=timeout) as response:
                if response.is_error:
                    response.read()
                _raise_for(response)
                yield from response.iter_text()
        except httpx.TransportError as error:
            raise Unreachable(self.url, error) from error

    def _pages(self, path: str, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        cursor = None
        while True:
            page = self._json("GET", path, params=params | ({"cursor": cursor} if cursor else {}))
            yield from page["items"]
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        body: dict[str, Any] = self._call(method, path, **arguments)
        return body

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        try:
            response = self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise Unreachable(self.url, error) from error
        _raise_for(response)
        return response.json() if response.content else {}


def _raise_for(response: httpx.Response) -> None:
    if not response.is_error:
        return
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        raise Refused(response.json())
    detail = f"{response.url} answered {response.status_code}, not as Paceline does: {response.text[:200]}"
    raise Refused({"status": response.status_code, "detail": detail})
