"""The lines of a process's log: what they show, and what they never show."""

import copy
import json
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trainer.process_log.context import CREDENTIAL, log_context
from trainer.process_log.line_format import MAX_EXCEPTION, MAX_MESSAGE, JsonLines, TextLines
from trainer.process_log.setup import BadLogSettings, LogSettings

ACCESS_TOKEN = "pl_" + "Ab3-_xYz" * 5
LEASE_TOKEN = "q0P-3_rT" * 4


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    before = log_context.process, log_context.mask
    log_context.process = {"process": "slot", "slot": "slot.here.1"}
    yield
    log_context.process, log_context.mask = before


def record(message: str, *arguments: object, error: BaseException | None = None, **more: Any) -> logging.LogRecord:
    exception = None if error is None else (type(error), error, error.__traceback__)
    found = logging.LogRecord("paceline", logging.INFO, __file__, 1, message, arguments, exception)
    vars(found).update(more)
    return found


def as_json(*arguments: Any, **more: Any) -> dict[str, Any]:
    text = JsonLines().format(record(*arguments, **more))
    assert "\n" not in text
    line: dict[str, Any] = json.loads(text)
    return line


def raised(message: str) -> BaseException:
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError(message)
    return caught.value


def test_a_line_is_one_object_with_what_is_bound() -> None:
    with log_context.bound(experiment="x-1", trial="t-1", attempt=2, request="r-1"):
        line = as_json("two\nlines of %s", "é", error=raised("no"), fields={"status": 200})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("timestamp"))
    assert line.pop("exception").endswith("RuntimeError: no")
    assert line == {
        "level": "INFO",
        "logger": "paceline",
        "message": "two\nlines of é",
        "process": "slot",
        "slot": "slot.here.1",
        "experiment": "x-1",
        "trial": "t-1",
        "attempt": 2,
        "request": "r-1",
        "status": 200,
    }
    assert "trial" not in as_json("after it")


def test_text_ends_its_first_line_with_the_ids() -> None:
    with log_context.bound(experiment="x-1", attempt=2, agent="here", request="a\nb"):
        first, *others = TextLines().format(record("it fails", error=raised("no"))).splitlines()
    assert first.endswith(r"INFO paceline: it fails [experiment=x-1 attempt=2 request='a\nb']")
    assert others[-1] == "    RuntimeError: no"
    assert TextLines().format(record("nothing is bound")).endswith("INFO paceline: nothing is bound")


@pytest.mark.parametrize("lines", [JsonLines(), TextLines()])
@pytest.mark.parametrize(
    "quoted",
    [
        f"{{'Authorization': 'Bearer {LEASE_TOKEN}'}}",
        f"(b'authorization', b'Bearer {LEASE_TOKEN}')",
        f"authorization: Basic {LEASE_TOKEN}",
        f"GET /v1/trials/{ACCESS_TOKEN}",
        f"postgresql+psycopg://user:{LEASE_TOKEN}@host/db does not answer",
        f"https://bucket/x?X-Amz-Signature={LEASE_TOKEN}&b=1",
        f"https://host/x?access_token={LEASE_TOKEN}",
    ],
)
def test_what_looks_like_a_secret_is_masked(lines: logging.Formatter, quoted: str) -> None:
    with log_context.bound(experiment=quoted):
        line = lines.format(record("%s", quoted, error=raised(quoted)))
    assert LEASE_TOKEN not in line
    assert ACCESS_TOKEN not in line


def test_the_requests_own_token_and_the_processs_secrets_are_masked_wherever_they_are() -> None:
    log_context.mask = lambda text: text.replace("s3cr3t", "***")
    with log_context.bound(**{CREDENTIAL: LEASE_TOKEN}):
        line = as_json("%s and s3cr3t", LEASE_TOKEN, error=raised(f"{LEASE_TOKEN}, s3cr3t"))
        assert CREDENTIAL not in line
    assert line["message"] == "*** and ***"
    assert line["exception"].endswith("RuntimeError: ***, ***")


def test_a_library_that_logs_wrongly_still_writes_a_line() -> None:
    assert as_json("%d of %d", "a")["message"] == "%d of %d ('a',)"


@pytest.mark.parametrize("character", ["e", "é", "🚲", "\0"])
def test_a_line_is_short_enough_for_a_container_runtime(character: str) -> None:
    line = as_json(character * 100_000, error=raised(character * 100_000))
    assert len(json.dumps(line)) < 16_000
    size = len(json.dumps(character)) - 2
    assert line["message"] == character * (MAX_MESSAGE // size)
    assert line["exception"] == character * (MAX_EXCEPTION // size)


def test_another_thread_takes_over_what_is_bound_and_can_add_to_it() -> None:
    found = {}

    def work(bound: dict[str, Any]) -> None:
        found["before"] = log_context.fields()
        with log_context.resumed(bound):
            log_context.add(attempt=3)
            found["within"] = log_context.fields()
        found["after"] = log_context.fields()

    with log_context.bound(trial="t-1"):
        thread = threading.Thread(target=work, args=(log_context.current(),))
        thread.start()
        thread.join()
        assert log_context.fields()["attempt"] == 3
    assert found["before"] == found["after"] == log_context.process
    assert found["within"] == {**log_context.process, "trial": "t-1", "attempt": 3}


def test_a_repeated_call_keeps_its_request_id() -> None:
    with log_context.request():
        first = log_context.request_id
        with log_context.request():
            assert log_context.request_id == first
    with log_context.request():
        assert log_context.request_id not in (None, first)


def test_code_that_arrives_by_value_uses_the_context_of_its_process() -> None:
    """`copy` pickles in the same way."""
    assert copy.copy(log_context) is log_context


def test_a_wrong_setting_is_refused_with_what_would_be_right() -> None:
    assert LogSettings.from_env({"PACELINE_LOG_FORMAT": "JSON", "PACELINE_LOG_LEVEL": ""}) == LogSettings("json")
    with pytest.raises(BadLogSettings, match=r"PACELINE_LOG_LEVEL must be one of debug, .*, not 'loud'"):
        LogSettings.from_env({"PACELINE_LOG_LEVEL": "loud"})


def test_a_text_line_shows_the_control_characters_of_what_it_quotes() -> None:
    line = TextLines().format(record("POST %s: gone", "/t-\x1b[2J\x9b31m\u202e\r\u2028x", error=raised("\x1b]0;t\x07")))
    assert r"POST /t-\x1b[2J\x9b31m\u202e\r\u2028x: gone" in line
    assert line.endswith(r"RuntimeError: \x1b]0;t\x07")


def test_a_message_cannot_begin_a_line_of_the_log() -> None:
    _, second = TextLines().format(record("GET %s", "/t\n2026-01-01 00:00:00,000 INFO forged")).splitlines()
    assert second.startswith("    2026-01-01")


def test_an_exception_cannot_begin_a_line_of_the_log() -> None:
    failed = record("it failed")
    failed.exc_info = (ValueError, ValueError("bad name 'x\n2026-01-01 00:00:00,000 INFO forged'"), None)
    first, *others = TextLines().format(failed).splitlines()
    assert "it failed" in first
    assert [line for line in others if not line.startswith("    ")] == []
    assert "    2026-01-01" in others[-1]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["//:", "//", "@", "//a:", "?key", "basic "])
def test_a_long_text_is_masked_in_linear_time(text: str) -> None:
    """A time that grows with the square of the length is longer than the limit."""
    as_json("%s", text * 300_000)
