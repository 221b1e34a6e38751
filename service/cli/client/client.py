"""A client of the HTTP API, as the command line uses it: one method for each call."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, BinaryIO, Self
from urllib.parse import quote, urlsplit

import httpx

from service.cli.argument_values import BadArgument
from service.cli.client.answer_shapes import (
    AGENT,
    CHECKPOINT,
    CHECKPOINT_PLAN,
    DECISION,
    EVENT,
    EXPERIMENT,
    FRONT,
    IMPORTANCE,
    PREVIEW,
    READINESS,
    REPLAY,
    REPORT,
    TRIAL,
    TRIAL_WITH_ATTEMPTS,
    Shape,
    page_of,
)
from service.cli.client.answers import Json, Refused, Unreachable, body_of, foreign, raise_for_status, undecodable
from service.cli.code_archive import Code
from service.settings import without_password

TIMEOUT_SECONDS = 30
COMPUTE_TIMEOUT = httpx.Timeout(TIMEOUT_SECONDS, read=600)
"""Longer than the service lets a computation wait and run: by default a minute and a half."""
LOOPBACK = {"127.0.0.1", "localhost", "::1"}

KEEP_ALIVE_HEADER = "Paceline-Keep-Alive"
KEEP_ALIVE, SILENCE_SECONDS = "\0", 60
"""What the service sends every 15 s of a log that is followed and has no output, and after how long without it the
connection counts as gone, although nothing has ended it. A service that sends it says so in the header."""
LOG_START_HEADER = "Paceline-Log-Start"
"""Where the tail of a log begins."""
UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""A proxy that compresses an answer holds back what has come of it."""

NO_HEADERS: Mapping[str, str] = {}
REPETITION_PAUSES_SECONDS = (1.0, 3.0)
"""Before a call that creates something is repeated: a service that was killed is back by then."""

CONNECTION_VARIABLES = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""What httpx reads. An empty value counts as none."""


class Client:
    """Every method raises Unreachable and Refused, and BadArgument for what is no name.

    `token` is needed only where the service asks for one.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        """Raises BadArgument where the environment has proxies or certificates that cannot be used."""
        address = url.rstrip("/")
        self.url = without_password(address)
        self.log_start: str | None = None
        """Where the newest tail of a log began, if the service has said so."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # A proxy from the environment cannot reach loopback addresses.
        parts = urlsplit(self.url)
        trust_env = parts.hostname not in LOOPBACK
        try:
            # Loading the certificates takes longer than a call. Those of the environment count on loopback, too.
            verify = httpx.create_ssl_context() if parts.scheme == "https" else False
            self._http = httpx.Client(
                base_url=address, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=trust_env, verify=verify
            )
        except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
            raise BadArgument(
                f"{self.url} cannot be called: {without_password(str(error))}; see the environment variables "
                f"{', '.join(CONNECTION_VARIABLES)}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def submit(self, spec: bytes, code: Code | None) -> Json:
        files: dict[str, tuple[str, bytes | BinaryIO, str]] = {"spec": ("spec.yaml", spec, "application/yaml")}
        if code:
            files["code"] = (code.filename, code.content, "application/octet-stream")
        return self._create("/v1/experiments", "paceline ls", EXPERIMENT, files=files, timeout=COMPUTE_TIMEOUT)

    def experiments(self, status: str | None = None, tag: str | None = None) -> Iterator[Json]:
        """All of them, or those with this status and this tag, as `name:value`."""
        wanted = {"status": status, "tag": tag}
        return self._items(
            "/v1/experiments", EXPERIMENT, {name: value for name, value in wanted.items() if value is not None}
        )

    def experiment(self, name: str) -> Json:
        return self._json("GET", path_of("experiments", name), EXPERIMENT)

    def best(self, experiment: str) -> Json:
        """The best trial, or the whole Pareto front, whose pages are one list."""
        path = path_of("experiments", experiment, "best")
        best = page = self._json("GET", path, TRIAL_WITH_ATTEMPTS, FRONT)
        while cursor := page.get("next_cursor"):
            page = self._json("GET", path, FRONT, params={"cursor": cursor})
            best["items"] += page["items"]
        return best | {"next_cursor": None} if "items" in best else best

    def events(self, experiment: str, after: int) -> Iterator[Json]:
        """Yield the events after number `after`, up to the newest."""
        return self._items(
            path_of("experiments", experiment, "events"), EVENT, {"follow": False, "after": after, "limit": 1000}
        )

    def pause(self, experiment: str) -> Json:
        return self._order(experiment, "pause")

    def resume(self, experiment: str) -> Json:
        return self._order(experiment, "resume")

    def stop_experiment(self, experiment: str) -> Json:
        return self._order(experiment, "stop")

    def cancel(self, experiment: str) -> Json:
        return self._order(experiment, "cancel")

    def _order(self, experiment: str, verb: str) -> Json:
        with _hinting(f"paceline show {experiment}"):
            return self._json("POST", path_of("experiments", experiment, verb), EXPERIMENT)

    def change(self, experiment: str, patch: Json) -> Json:
        headers = {"Content-Type": "application/merge-patch+json"}
        with _hinting(f"paceline show {experiment}"):
            return self._json(
                "PATCH", path_of("experiments", experiment), EXPERIMENT, content=json.dumps(patch), headers=headers
            )

    def checkpoint_plan(self, experiment: str, rules: Json) -> Json:
        """What retention would do by the spec's rules with these changes: all of its pages as one."""
        pages = list(self._pages(path_of("experiments", experiment, "checkpoints", "plan"), CHECKPOINT_PLAN, rules))
        totals = {name: pages[-1][name] for name in ("remove", "keep")}
        return totals | {"items": [item for page in pages for item in page["items"]]}

    def delete(self, experiment: str, *, keep_checkpoints: bool) -> None:
        params = {"keep_checkpoints": True} if keep_checkpoints else {}
        with _hinting("paceline ls"):
            answer = self._call("DELETE", path_of("experiments", experiment), params=params)
            if answer.status_code != httpx.codes.NO_CONTENT:
                raise foreign(answer)

    def importance(self, experiment: str, metric: str | None, evaluator: str) -> Json:
        params = {"evaluator": evaluator} | ({"metric": metric} if metric else {})
        path = path_of("experiments", experiment, "importance")
        return self._json("GET", path, IMPORTANCE, params=params, timeout=COMPUTE_TIMEOUT)

    def replay(self, experiment: str, early_stopping: Json) -> Json:
        body = json.dumps({"early_stopping": early_stopping})
        headers = {"Content-Type": "application/json"}
        path = path_of("experiments", experiment, "replay")
        return self._json("POST", path, REPLAY, content=body, headers=headers, timeout=COMPUTE_TIMEOUT)

    def preview(self, document: bytes) -> Json:
        """Send a spec, or the parts of one that a preview needs, in JSON or YAML."""
        headers = {"Content-Type": "application/yaml"}
        path = "/v1/spaces/preview"
        return self._json("POST", path, PREVIEW, content=document, headers=headers, timeout=COMPUTE_TIMEOUT)

    def trials(
        self, experiment: str, number: int | None = None, *, status: str | None = None, best_first: bool = False
    ) -> Iterator[Json]:
        """All of them, or those with this number or status."""
        wanted = {"number": number, "status": status, "sort": "value" if best_first else None}
        given = {name: value for name, value in wanted.items() if value is not None}
        return self._items(path_of("experiments", experiment, "trials"), TRIAL, given)

    def enqueue(self, experiment: str, document: bytes) -> list[Json]:
        """Send one configuration or a list of them, in JSON or YAML, and return their trials."""
        headers = {"Content-Type": "application/yaml"}
        path = path_of("experiments", experiment, "trials")
        look = f"paceline show {experiment}"
        created = self._create(path, look, TRIAL, page_of(TRIAL), content=document, headers=headers)
        trials: list[Json] = created.get("items", [created])
        return trials

    def retry_trial(self, trial: str) -> Json:
        with _hinting(f"paceline show {trial}"):
            return self._json("POST", path_of("trials", trial, "retry"), TRIAL_WITH_ATTEMPTS)

    def stop_trial(self, trial: str) -> Json:
        with _hinting(f"paceline show {trial}"):
            return self._json("POST", path_of("trials", trial, "stop"), TRIAL_WITH_ATTEMPTS)

    def trial(self, trial: str) -> Json:
        return self._json("GET", path_of("trials", trial), TRIAL_WITH_ATTEMPTS)

    def reports(self, trial: str) -> Iterator[Json]:
        return self._items(path_of("trials", trial, "reports"), REPORT, {})

    def decisions(self, trial: str) -> Iterator[Json]:
        return self._items(path_of("trials", trial, "decisions"), DECISION, {})

    def checkpoints(self, trial: str) -> Iterator[Json]:
        return self._items(path_of("trials", trial, "checkpoints"), CHECKPOINT, {})

    def pin_checkpoint(self, trial: str, step: int) -> Json:
        return self._pin("PUT", trial, step)

    def unpin_checkpoint(self, trial: str, step: int) -> Json:
        return self._pin("DELETE", trial, step)

    def _pin(self, method: str, trial: str, step: int) -> Json:
        with _hinting(f"paceline checkpoints {trial}"):
            return self._json(method, path_of("trials", trial, "checkpoints", step, "pin"), CHECKPOINT)

    def logs(
        self, trial: str, rank: int | None, since: int | str | None, attempt: int | None = None, *, follow: bool
    ) -> Iterator[str]:
        """Yield pieces of text, of the newest attempt by default; with `follow`, until the attempt ends.

        `since`: the number of last lines, or an earlier `log_start`. The first piece is empty: the service has begun to
        answer.
        """
        begin = {"start" if isinstance(since, str) else "tail": since}
        params = {"rank": rank, "attempt": attempt, "follow": follow or None, **begin}
        given = {name: value for name, value in params.items() if value is not None}
        # Not even the head comes at once: proxies hold it back until there is output.
        timeout = httpx.Timeout(TIMEOUT_SECONDS, read=None if follow else SILENCE_SECONDS)
        headers = UNCOMPRESSED | ({KEEP_ALIVE_HEADER: "true"} if follow else {})
        with self._stream(path_of("trials", trial, "logs"), params=given, timeout=timeout, headers=headers) as response:
            is_text = response.headers.get("content-type", "").startswith("text/plain")
            if response.status_code != httpx.codes.OK or not is_text:
                response.read()
                raise foreign(response)
            self.log_start = response.headers.get(LOG_START_HEADER)
            if response.headers.get(KEEP_ALIVE_HEADER) == "true":
                response.request.extensions["timeout"]["read"] = SILENCE_SECONDS
            yield ""
            yield from (text.replace(KEEP_ALIVE, "") for text in response.iter_text())

    @contextmanager
    def archive(self, path: str, start: int = 0, etag: str | None = None) -> Iterator[httpx.Response]:
        """The answer with the tar archive at this path: all of it, or the bytes from `start` on.

        All of it also if `etag`, that of an earlier answer, is out of date. Reading it raises Unreachable, too.
        """
        headers = dict(UNCOMPRESSED)
        if etag:
            headers |= {"Range": f"bytes={start}-", "If-Range": etag}
        with self._stream(path, headers=headers) as response:
            yield response

    def date(self) -> str | None:
        """The service's clock, as the header of an answer that needs no token says it."""
        date: str | None = self._call("GET", "/healthz").headers.get("date")
        return date

    def readiness(self) -> Json:
        """Whether the service can serve, and what it depends on."""
        with self._answer("GET", "/readyz") as response:
            response.read()
        if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:  # which has the same body
            raise_for_status(response)
        return body_of(response, READINESS)

    def agents(self) -> Iterator[Json]:
        return self._items("/v1/agents", AGENT, {})

    @contextmanager
    def _stream(self, path: str, **arguments: Any) -> Iterator[httpx.Response]:
        with self._answer("GET", path, **arguments) as response:
            if not response.is_success:
                response.read()
            raise_for_status(response)
            yield response

    def _items(self, path: str, shape: Shape, params: Json) -> Iterator[Json]:
        for page in self._pages(path, page_of(shape), params):
            yield from page["items"]

    def _pages(self, path: str, shape: Shape, params: Json) -> Iterator[Json]:
        cursor = None
        while True:
            given = params | ({"cursor": cursor} if cursor else {})
            response = self._call("GET", path, params=given)
            page = body_of(response, shape)
            if cursor is not None and page["next_cursor"] == cursor:  # from a cache that ignores the query
                raise foreign(response)
            yield page
            cursor = page["next_cursor"]
            if not cursor:
                return

    def _json(self, method: str, path: str, *shapes: Shape, **arguments: Any) -> Json:
        """`shapes`: an answer of Paceline's is of one of them."""
        return body_of(self._call(method, path, **arguments), *shapes)

    def _create(
        self, path: str, look: str, *shapes: Shape, headers: Mapping[str, str] = NO_HEADERS, **arguments: Any
    ) -> Json:
        """A call with a key, by which the service recognizes a repetition, so that it creates nothing twice.

        It is repeated after a lost connection, and where the service is away for now. `look` is the command that shows
        what was created, for an error that leaves it open.
        """
        keyed = {"Idempotency-Key": token_hex(16), **headers}
        failures: list[Unreachable | Refused] = []
        while True:
            try:
                return self._json("POST", path, *shapes, headers=keyed, **arguments)
            except (Unreachable, Refused) as error:
                failures.append(error)
                if not _deserve_repetition(failures):
                    _hint_if_open(failures, look)
                    raise
            time.sleep(REPETITION_PAUSES_SECONDS[len(failures) - 1])

    def _call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        with self._answer(method, path, **arguments) as response:
            response.read()
        raise_for_status(response)
        return response

    @contextmanager
    def _answer(self, method: str, path: str, **arguments: Any) -> Iterator[httpx.Response]:
        """Its body is still to be read, so that the status is known where the body is damaged."""
        with self._calling(), self._http.stream(method, path, **arguments) as response:
            try:
                yield response
            except httpx.DecodingError as error:
                raise undecodable(response, error) from error

    @contextmanager
    def _calling(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, UnicodeError) as error:  # the latter of a proxy whose name cannot be looked up
            raise Unreachable(self.url, error) from error


@contextmanager
def _hinting(look: str) -> Iterator[None]:
    """For a call that changes something and is not repeated; `look` as in `Client._create`."""
    try:
        yield
    except (Unreachable, Refused) as error:
        _hint_if_open([error], look)
        raise


def _deserve_repetition(failures: Sequence[Unreachable | Refused]) -> bool:
    is_last = len(failures) > len(REPETITION_PAUSES_SECONDS)
    return not is_last and failures[-1].is_temporary and any(failure.deserves_repetition for failure in failures)


def _hint_if_open(failures: Sequence[Unreachable | Refused], look: str) -> None:
    """Say so in the last failure if a call was carried out perhaps.

    A refusal of the service's own is an answer for all of them.
    """
    last = failures[-1]
    is_answer = isinstance(last, Refused) and last.is_verdict
    if not is_answer and any(failure.leaves_open for failure in failures):
        last.hints.append(f"the service may have carried out the call: see `{look}` before you repeat it")


def path_of(*parts: str | int) -> str:
    """The path of a resource. Raises BadArgument for what is no name."""
    return "/".join(["/v1", *map(_quoted, map(str, parts))])


def _quoted(part: str) -> str:
    """Quotes slashes twice, because servers take quoted ones for parts of the path.

    Dots cannot be quoted: clients resolve them, so that a call of `.` would be one of the list that contains it.
    """
    if part in {"", ".", ".."}:
        raise BadArgument(f"{part!r} is not a name or an id; `paceline ls` lists the experiments")
    try:
        return quote(part.replace("/", "%2F"), safe="")
    except UnicodeError as error:
        raise BadArgument(f"{part!r} is not a name or an id: it is not UTF-8") from error
