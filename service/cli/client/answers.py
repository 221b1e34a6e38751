"""What the service, or what is in its place, answers to the command line's calls."""

from contextvars import ContextVar
from pathlib import Path
from traceback import extract_tb
from typing import Any

import httpx

from service.cli.client.answer_shapes import Shape
from service.cli.client.commands_in_messages import with_commands
from service.errors import PROBLEM_TYPES, TooMuchWork
from service.settings import without_password
from trainer.process_log.foreign_answers import API_CALL, IS_IT_A_PROXY, certificate_problem, foreign_answer

TEMPORARY = frozenset({408, 429, 502, 503, 504})
SUCCESS = range(200, 300)

Json = dict[str, Any]

read_at: ContextVar[str | None] = ContextVar("read_at", default=None)
"""The address of what has answered a command, once it has."""

UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)
"""What reading an answer raises whose inner parts have another shape: its `Shape` says only what the outermost has."""

SHOW_TRACEBACK = "PACELINE_TRACEBACK"
"""The environment variable that, as `1`, shows such an error with its traceback."""

PACKAGE = Path(__file__).parents[2]


class Unreachable(Exception):
    """A call to the URL got no answer, or not the whole of it."""

    is_temporary = True

    def __init__(self, url: str, error: Exception) -> None:
        if untrusted := certificate_problem(url, error):
            message = untrusted
        elif isinstance(error, httpx.ConnectError):
            message = f"no service answers at {url} ({error}); start it with `paceline up`, or set PACELINE_URL"
        else:
            message = f"a call to the service at {url} failed: {error or type(error).__name__}"
        super().__init__(message)
        self.hints: list[str] = []
        self.deserves_repetition = isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError)
        """Whether the connection broke in the middle of the call, which the service may have carried out."""
        self.leaves_open = self.deserves_repetition or isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout)
        """Whether the service may have carried out the call."""


class Refused(Exception):
    """The service, or what is in its place, answered with an error. `hints` are for the terminal.

    `problem` is the body (problem+json). Only that it has a number as `status` and a text is certain.
    """

    def __init__(self, problem: Json) -> None:
        super().__init__(with_commands(str(problem.get("detail") or problem.get("title"))))
        self.problem = problem
        self.hints: list[str] = []

    @property
    def is_own(self) -> bool:
        """Whether the service itself has answered, and no other program in its place."""
        return str(self.problem.get("type", "")).startswith(PROBLEM_TYPES)

    @property
    def type(self) -> str:
        """Empty for an answer of another program."""
        return str(self.problem["type"]).removeprefix(PROBLEM_TYPES) if self.is_own else ""

    @property
    def status(self) -> int:
        return int(self.problem["status"])

    @property
    def is_temporary(self) -> bool:
        """Whether the service itself may answer later: it is away for now, or another program has answered."""
        return self.status in TEMPORARY or not self.is_own

    @property
    def deserves_repetition(self) -> bool:
        """Whether the call may succeed if it is repeated soon. The same computation would take too long again."""
        is_failure = not self.is_own and self.status >= httpx.codes.INTERNAL_SERVER_ERROR
        return self.type != TooMuchWork.type and (self.status in TEMPORARY or is_failure)

    @property
    def leaves_open(self) -> bool:
        """Whether the service may have carried out the call, and a proxy has asked it in vain or damaged the answer.

        With 503 a proxy says that there is no service to ask.
        """
        is_failure = self.status >= httpx.codes.INTERNAL_SERVER_ERROR and self.status != httpx.codes.SERVICE_UNAVAILABLE
        return not self.is_own and (is_failure or self.status == httpx.codes.REQUEST_TIMEOUT or self.status in SUCCESS)

    @property
    def is_verdict(self) -> bool:
        """Whether the service itself has refused the call, and not because of the token or the number of calls."""
        return self.is_own and self.status in range(400, 500) and self.status not in (401, 403, 408, 429)

    @property
    def errors(self) -> list[str]:
        """Each mistake with its path, or else the detail."""
        try:
            mistakes = [f"{error['path']}: {error['message']}".removeprefix(": ") for error in self.problem["errors"]]
        except (KeyError, TypeError):
            mistakes = []
        return list(map(with_commands, mistakes)) or [str(self)]


def body_of(response: httpx.Response, *shapes: Shape) -> Json:
    """Raises Refused for what is no JSON object of one of the shapes, as the page of a login."""
    body = _object_in(response)
    if not any(shape.has(body) for shape in shapes):
        raise foreign(response)
    read_at.set(API_CALL.sub("", without_password(str(response.url.copy_with(query=None)))))
    return body


def unreadable(address: str, error: Exception) -> str:
    """What to say of an UNREADABLE error: whether an answer has caused it, or a fault of ours, is not known."""
    return (
        f"the command failed after an answer of {address} ({type(error).__name__}: {error}; {_place_of(error)}): "
        f"{IS_IT_A_PROXY} Or is the service of another version than this command? If neither, please report this "
        f"with the traceback, which {SHOW_TRACEBACK}=1 shows"
    )


def _place_of(error: Exception) -> str:
    """The last one in our own code: a library that it calls does not say what was read."""
    own = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(PACKAGE)]
    return f"{Path(own[-1].filename).relative_to(PACKAGE.parent)}, line {own[-1].lineno}"


def raise_for_status(response: httpx.Response) -> None:
    """Raises Refused for an answer that is no success. Its body must have been read."""
    if response.is_success:
        return
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    problem = _object_in(response) if is_problem else {}
    if problem.get("detail") or problem.get("title"):
        raise Refused(problem | {"status": response.status_code})
    raise foreign(response)


def _object_in(response: httpx.Response) -> Json:
    """Empty for what is no JSON object."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def foreign(response: httpx.Response) -> Refused:
    location = without_password(response.headers["location"]) if response.has_redirect_location else None
    detail = foreign_answer(without_password(str(response.url)), response.status_code, location, response.text)
    return Refused({"status": response.status_code, "detail": detail})


def undecodable(response: httpx.Response, error: httpx.DecodingError) -> Refused:
    """The error for an answer whose compression is damaged."""
    answered = f"{without_password(str(response.url))} answered {response.status_code} with a body that is damaged"
    return Refused({"status": response.status_code, "detail": f"{answered} ({error}); {IS_IT_A_PROXY}"})
