"""What libraries and `print` write past `logging`."""

import logging
import sys
from contextlib import redirect_stderr

from tests.process_log import logged
from trainer.process_log.stray_output import StrayOutput


def test_each_line_is_logged_once_it_is_complete() -> None:
    stray = StrayOutput(sys.stderr, "stray", logging.WARNING)
    with logged("stray") as lines:
        print("one", "two", file=stray)
        print("\nthree\nfo", end="", file=stray)
        print("ur", file=stray, flush=True)
    assert [line["message"] for line in lines] == ["one two", "three", "four"]


def test_a_line_that_never_ends_is_logged_in_parts() -> None:
    stray = StrayOutput(sys.stderr, "stray", logging.WARNING)
    with logged("stray") as lines:
        for number in range(70):
            stray.write(f"{number:09}\r")
    assert [line["message"].split("\r")[-1] for line in lines] == ["000000029", "000000059"]
    assert lines[0]["message"].startswith("000000000\r000000001\r")


def test_a_handler_that_fails_does_not_log_without_end() -> None:
    class Failing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            calls.append(record)
            sys.stderr.write("--- Logging error ---\n")

    calls: list[logging.LogRecord] = []
    logger, handler = logging.getLogger("stray"), Failing()
    logger.addHandler(handler)
    with redirect_stderr(StrayOutput(sys.stderr, "stray", logging.WARNING)):
        sys.stderr.write("one\n")
    logger.removeHandler(handler)
    assert len(calls) == 1
