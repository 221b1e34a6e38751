"""How much code a report, a claim and a submitted spec go through: the distinct files and functions of each package.

A service runs in this process, on SQLite. A profile function records every function of ours that is called while the
service answers one call of the kind. One call of the same kind comes before it, so that caches are warm. Comprehensions
and generator expressions do not count as functions. The background loops are stopped, since they belong to no call.

    python -m benchmarks.code_walkthroughs [--list]
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from operator import attrgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import httpx
import uvicorn

from service.app.application import create_app
from service.settings import Settings
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import upgrade

ROOT = Path(__file__).parents[1]
PACKAGES = "service", "search", "trainer"
SETTLE_SECONDS = 0.5
"""The time for what follows the answer, such as the next proposal."""


class Function(NamedTuple):
    file: str
    name: str
    """as `Class.method` for a method"""
    line: int
    is_resumed: bool
    """a coroutine or a generator, which is called again whenever it goes on"""


class Call(NamedTuple):
    """`callers`: our functions on the stack of its thread."""

    function: Function
    callers: frozenset[Function]


RESUMED = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR
NOT_FUNCTIONS = {"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<module>"}

_calls: list[Call] = []
_is_recording = threading.Event()
_prefixes = tuple(f"{ROOT / package}/" for package in PACKAGES)


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Record, in their order, the calls of functions of `PACKAGES` in the service's threads, until shortly after it."""
    _calls.clear()
    _is_recording.set()
    yield _calls
    time.sleep(SETTLE_SECONDS)
    _is_recording.clear()


def _profile(frame: FrameType, event: str, _: Any) -> None:
    if event == "call" and _is_recording.is_set() and (function := _function(frame.f_code)) is not None:
        _calls.append(Call(function, frozenset(_callers(frame))))


def _callers(frame: FrameType) -> Iterator[Function]:
    caller = frame.f_back
    while caller is not None:
        if (function := _function(caller.f_code)) is not None:
            yield function
        caller = caller.f_back


def _function(code: CodeType) -> Function | None:
    """Return None for code that is not ours. The path counts, because code of two files may be equal for Python."""
    return _function_at(code.co_filename, code.co_name, code.co_qualname, code.co_firstlineno, code.co_flags)


@cache
def _function_at(path: str, name: str, qualified: str, line: int, flags: int) -> Function | None:
    if not path.startswith(_prefixes) or name in NOT_FUNCTIONS:
        return None
    return Function(str(Path(path).relative_to(ROOT)), qualified, line, bool(flags & RESUMED))


@contextmanager
def profiled_service(directory: Path) -> Iterator[httpx.Client]:
    url = f"sqlite:///{directory / 'paceline.db'}"
    settings = Settings(data_dir=directory, database_url=url, storage=str(directory / "checkpoints"))
    settings.prepare_directories()
    database = Database(url)
    upgrade(database)
    database.close()
    threading.setprofile(_profile)
    app = create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    for loop in app.state.loops:
        loop.stop()
    for preparation in [one for one in threading.enumerate() if isinstance(one, threading.Timer)]:
        preparation.join()  # imports of what later proposals need, which belong to no call either
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            yield http
    finally:
        server.should_exit = True
        thread.join()
        threading.setprofile(None)


def spec(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "space": {"lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}},
        "objectives": [{"metric": "accuracy", "direction": "maximize"}],
        "search": {"sampler": "tpe", "seed": 7},
        "early_stopping": {"rule": "asha", "min_step": 1, "reduction_factor": 3},
        "trainer": {"kind": "torch", "entrypoint": "examples:train"},
        "limits": {"max_trials": 100, "parallelism": 100},
    }


def submit(http: httpx.Client, name: str) -> None:
    http.post("/v1/experiments", json=spec(name)).raise_for_status()


def claim(http: httpx.Client, request_id: str) -> dict[str, Any]:
    message = {"request_id": request_id, "nodes": [{"total": {"CPU": 64.0}, "free": {"CPU": 64.0}}]}
    assignment: dict[str, Any] = http.post("/v1/agents/here/claim", json=message).raise_for_status().json()
    return assignment


def report(http: httpx.Client, assignment: dict[str, Any], accuracy: float) -> str:
    headers = {"Authorization": f"Bearer {assignment['lease']['token']}"}
    body = {"reports": [{"sequence": 0, "metrics": {"accuracy": accuracy}}]}
    answer = http.post(f"/v1/trials/{assignment['trial']}/reports", headers=headers, json=body)
    return str(answer.raise_for_status().json()["decision"])


def walks(http: httpx.Client) -> dict[str, list[Call]]:
    """The report is stopped at ASHA's first rung; the claim computes a proposal, with one more computed ahead."""
    submit(http, "warm")
    with recorded() as calls:
        submit(http, "measured")
    found = {"submit": [*calls]}
    for number in range(4):
        report(http, claim(http, f"warm-{number}"), 0.9)
        time.sleep(SETTLE_SECONDS)
    trials = [claim(http, f"reporting-{number}") for number in range(2)]
    report(http, trials[0], 0.1)
    time.sleep(SETTLE_SECONDS)
    with recorded() as calls:
        decision = report(http, trials[1], 0.1)
    assert decision == "stop", decision  # noqa: S101 - another decision takes another way
    found["report"] = [*calls]
    with recorded() as calls:
        claim(http, "measured")
    found["claim"] = [*calls]
    return found


def show(name: str, calls: list[Call], *, listed: bool) -> None:
    functions = {call.function for call in calls}
    files = {function.file for function in functions}
    print(f"{name:<8} {len(files):>3} files {len(functions):>4} functions", flush=True)
    for package in PACKAGES:
        of_package = Counter(function.file for function in functions if function.file.startswith(f"{package}/"))
        if of_package:
            print(f"  {package:<10} {len(of_package):>3} files {sum(of_package.values()):>4} functions")
    if listed:
        for one in sorted(functions, key=attrgetter("file", "line")):
            print(f"    {one.file}:{one.line} {one.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--list", action="store_true", help="also list the functions")
    arguments = parser.parse_args()
    if sys.gettrace() is not None:
        sys.exit("a debugger or coverage is active")
    with tempfile.TemporaryDirectory(prefix="paceline-walks-") as directory, profiled_service(Path(directory)) as http:
        for name, calls in walks(http).items():
            show(name, calls, listed=arguments.list)


if __name__ == "__main__":
    main()
