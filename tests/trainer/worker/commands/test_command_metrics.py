"""What a command reports: lines of its output, a file with JSON lines, and HTTP calls."""

import os
import re
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.trainer.conftest import until
from trainer.worker.commands.command_metrics import (
    MAX_JSON_LINE_BYTES,
    CommandReport,
    JsonLinesReader,
    StdoutReader,
)
from trainer.worker.commands.command_process import open_fifo
from trainer.worker.commands.line_search import MAX_LINE_BYTES, metrics_in
from trainer.worker.failures import BadCommandFile

LOSS = re.compile(r"loss=(?P<loss>\S+)(?: acc=(?P<acc>\S+))?")
EPOCH = re.compile(r"epoch (?P<epoch>\d+)")
PAIRS = re.compile(r"(?P<name>\w+)=(?P<value>\S+)")


def unexpected(error: Exception) -> None:
    raise error


@contextmanager
def written_to_a_fifo(output: bytes) -> Iterator[IO[bytes]]:
    reading, writing = open_fifo()
    os.write(writing, output)
    os.close(writing)
    with open(reading, "rb", buffering=0) as stream:  # noqa: PTH123 - a descriptor
        yield stream


@pytest.mark.parametrize(
    ("line", "patterns", "found"),
    [
        ("epoch 1 loss=0.5", [LOSS], {"loss": 0.5}),
        ("loss=1e-3 acc=2", [LOSS], {"loss": 1e-3, "acc": 2}),
        ("loss=nan-ish", [LOSS], {"loss": "nan-ish"}),
        ("loss=1_0", [LOSS], {"loss": "1_0"}),
        ("nothing here", [LOSS, EPOCH], {}),
        ("a=1 b=2.5 c=x", [PAIRS], {"a": 1, "b": 2.5, "c": "x"}),
        ("epoch 3: loss=0.25", [EPOCH, LOSS], {"epoch": 3, "loss": 0.25}),
        ("epoch 3: loss=0.25", [LOSS, PAIRS], {"loss": 0.25}),
        ("acc=2 loss=1", [PAIRS, LOSS], {"acc": 2, "loss": 1}),
    ],
)
def test_a_line_is_searched_for_metrics(line: str, patterns: list[re.Pattern[str]], found: dict[str, Any]) -> None:
    assert metrics_in(line, patterns) == found


def test_not_a_number_is_a_number() -> None:
    found = metrics_in("loss=nan", [LOSS])
    assert found["loss"] != found["loss"]


def test_of_a_line_that_a_progress_bar_rewrites_the_last_state_counts() -> None:
    found: list[CommandReport] = []
    output = "".join(f"\repoch 1: {batch}/3 loss={9 - batch}" for batch in range(1, 4)) + "\rsaved\nloss=5 acc=1\r\n"
    with written_to_a_fifo(output.encode()) as stream:
        reader = StdoutReader(stream, [EPOCH, LOSS], found.append, pytest.fail, unexpected)
        reader.start()
        reader.finish()
    assert [one.metrics for one in found] == [{"epoch": 1, "loss": 6}, {"loss": 5, "acc": 1}]


def test_the_output_is_passed_on_and_read(capfd: pytest.CaptureFixture[str]) -> None:
    found: list[CommandReport] = []
    with written_to_a_fifo(b"start\nloss=1\r\nloss=2\nloss=3") as stream:
        reader = StdoutReader(stream, [LOSS], found.append, pytest.fail, unexpected)
        reader.start()
        reader.finish()
    assert [one.metrics for one in found] == [{"loss": 1}, {"loss": 2}, {"loss": 3}]
    assert capfd.readouterr().out == "start\nloss=1\r\nloss=2\nloss=3"


@contextmanager
def reading(
    patterns: list[re.Pattern[str]], found: list[CommandReport], warned: list[str]
) -> Iterator[Callable[[str], None]]:
    """Yield what writes output that is being read."""
    descriptor, writing = open_fifo()
    with open(descriptor, "rb", buffering=0) as stream:  # noqa: PTH123 - a descriptor
        reader = StdoutReader(stream, patterns, found.append, warned.append, unexpected)
        reader.start()
        try:
            yield lambda text: write_all(writing, text.encode())
        finally:
            os.close(writing)
            reader.finish()


def write_all(descriptor: int, output: bytes) -> None:
    while output:
        output = output[os.write(descriptor, output) :]


def test_the_output_is_in_the_log_before_its_line_ends(capfd: pytest.CaptureFixture[str]) -> None:
    found, seen = list[CommandReport](), list[str]()

    def is_seen() -> bool:
        seen.append(capfd.readouterr().out)
        return "".join(seen) == "\r1/9 loss=3"

    with reading([LOSS], found, []) as write:
        write("\r1/9 loss=3")
        until(is_seen, "the unfinished line")
        assert found == []
        write("\r2/9 loss=2\n")
        until(lambda: found, "the report")
    assert [one.metrics for one in found] == [{"loss": 2}]


def test_a_line_that_is_too_long_is_not_searched_and_does_not_stay_in_memory() -> None:
    found, warned = list[CommandReport](), list[str]()
    tracemalloc.start()
    try:
        with reading([LOSS], found, warned) as write:
            write("loss=9 ")
            for _ in range(30):
                write("x" * 1_000_000)
            until(lambda: warned, "the warning comes before the line ends")
            write(" loss=8\nloss=1\n")
            write("loss=7" + "0" * MAX_LINE_BYTES + "\nloss=2\n")
            until(lambda: len(found) == 2, "the lines after it")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [one.metrics for one in found] == [{"loss": 1}, {"loss": 2}]
    assert warned == ["a line of the output with more than 8192 bytes is not searched for metrics"]
    assert peak < 10_000_000


def test_a_line_that_is_rewritten_without_end_is_searched_and_does_not_stay_in_memory() -> None:
    """The last state with metrics may be long ago."""
    found, warned = list[CommandReport](), list[str]()
    with reading([LOSS], found, warned) as write:
        for step in range(1000):
            write(f"\r{step}/1000 loss={step}")
        for step in range(1000):
            write(f"\rvalidating {step}/1000")
        write("\nsaved\n\rloss=5\n")
    assert [one.metrics for one in found] == [{"loss": 999}, {"loss": 5}]
    assert warned == []


def test_a_state_that_is_too_long_does_not_hide_the_others_of_its_line() -> None:
    found, warned = list[CommandReport](), list[str]()
    long = "loss=9" + "x" * 2 * MAX_LINE_BYTES
    with reading([LOSS], found, warned) as write:
        for line in (f"loss=1\r{long}\n", f"{long}\rloss=2\n", f"loss=3\r{long}\rsaved\r\n"):
            write(line)
    assert [one.metrics for one in found] == [{"loss": 1}, {"loss": 2}, {"loss": 3}]
    assert len(warned) == 1


def test_a_file_is_followed_from_where_it_was_to_its_last_line(tmp_path: Path) -> None:
    path, found, warned = tmp_path / "metrics.jsonl", list[CommandReport](), list[str]()
    path.write_text('{"loss": 9}\n')  # of an earlier attempt
    reader = JsonLinesReader(path, found.append, warned.append, unexpected)
    reader.start()
    with path.open("a") as file:
        file.write('{"loss": 1}\n\n[2]\n{"loss"')
        file.flush()
        until(lambda: found, "the first line")
        file.write(': 2}\n{"loss": 3}')
    reader.finish()
    assert [one.metrics for one in found] == [{"loss": 1}, {"loss": 2}, {"loss": 3}]
    assert warned == ["metrics.jsonl: a line is not a JSON object and is left out: [2]\n"]


def test_a_line_without_end_in_a_file_is_left_out_before_it_ends(tmp_path: Path) -> None:
    path, found, warned = tmp_path / "metrics.jsonl", list[CommandReport](), list[str]()
    reader = JsonLinesReader(path, found.append, warned.append, unexpected)
    reader.start()
    half = "x" * MAX_JSON_LINE_BYTES
    with path.open("a") as file:
        file.write(f'{{"loss": 1}}\n{{"loss": 2, "note": "{half}')
        file.flush()
        until(lambda: warned, "the warning")
        file.write(f'{half}"}}\n{{"loss": 3}}\n')
    reader.finish()
    assert [one.metrics for one in found] == [{"loss": 1}, {"loss": 3}]
    assert warned == ["metrics.jsonl: a line has more than 1,000,000 bytes and is left out"]


def test_a_file_that_the_command_begins_anew_is_read_from_its_start_without_its_own_lines(tmp_path: Path) -> None:
    path, found = tmp_path / "metrics.jsonl", list[CommandReport]()
    path.write_text('{"loss": 9}\n' * 3)  # from the package, or of an earlier attempt
    reader = JsonLinesReader(path, found.append, lambda _: None, unexpected)
    reader.start()
    lines = [f'{{"loss": {number}}}\n' for number in range(9)]
    path.write_text(lines[0])
    until(lambda: found, "the first line")
    path.write_text("".join(lines))
    reader.finish()
    assert [one.metrics["loss"] for one in found] == list(range(9))


def test_lines_that_the_command_writes_before_the_file_is_followed_are_read(tmp_path: Path) -> None:
    path, found = tmp_path / "metrics.jsonl", list[CommandReport]()
    path.write_text('{"loss": 9}\n')  # of an earlier attempt
    reader = JsonLinesReader(path, found.append, lambda _: None, unexpected)
    with path.open("a") as file:
        file.write('{"loss": 1}\n')
    reader.start()
    reader.finish()
    assert [one.metrics for one in found] == [{"loss": 1}]


def test_a_file_that_is_never_written_is_no_error(tmp_path: Path) -> None:
    reader = JsonLinesReader(tmp_path / "metrics.jsonl", lambda _: None, lambda _: None, unexpected)
    reader.start()
    reader.finish()


def test_of_a_file_little_is_read_ahead_of_the_reports(tmp_path: Path) -> None:
    """A command may write faster than its reports are handed over, and never end."""
    path, peaks = tmp_path / "metrics.jsonl", list[int]()

    def put(_: CommandReport) -> None:
        peaks.append(tracemalloc.get_traced_memory()[1])
        reader.abandon()

    reader = JsonLinesReader(path, put, pytest.fail, unexpected)
    path.write_text('{"loss": 1}\n' * 2 + ("\n" * 99 + '{"loss": 1, "note": "' + "x" * 900 + '"}\n') * 20_000)
    tracemalloc.start()
    try:
        reader.start()
        until(lambda: peaks, "the first report")
        reader.finish()
    finally:
        tracemalloc.stop()
    assert peaks[0] < 5_000_000


def test_a_file_that_is_abandoned_is_read_no_further(tmp_path: Path) -> None:
    path, found = tmp_path / "metrics.jsonl", list[CommandReport]()
    reader = JsonLinesReader(path, found.append, pytest.fail, unexpected)
    path.write_text('{"loss": 1}\n')
    reader.abandon()
    reader.start()
    reader.finish()
    assert found == []


def test_a_line_of_a_file_that_is_nested_too_deeply_is_left_out(tmp_path: Path) -> None:
    path, found, warned = tmp_path / "metrics.jsonl", list[CommandReport](), list[str]()
    reader = JsonLinesReader(path, found.append, warned.append, unexpected)
    path.write_text('{"loss": 1}\n' + "[" * 100_000 + '\n{"loss": 2}\n')
    reader.start()
    reader.finish()
    assert [one.metrics for one in found] == [{"loss": 1}, {"loss": 2}]
    assert warned == ["metrics.jsonl: a line is not a JSON object and is left out: " + "[" * 200]


def test_a_metrics_file_that_is_a_directory_for_a_moment_is_read_later(tmp_path: Path) -> None:
    path, found, warned = tmp_path / "metrics.jsonl", list[CommandReport](), list[str]()
    reader = JsonLinesReader(path, found.append, warned.append, unexpected)
    path.mkdir()
    reader.start()
    until(lambda: warned, "the warning")
    path.rmdir()
    path.write_text('{"loss": 1}\n')
    reader.finish()
    assert [one.metrics for one in found] == [{"loss": 1}]
    assert warned == [f"metrics.jsonl cannot be opened yet: [Errno 21] Is a directory: '{path}'"]


def test_a_metrics_file_that_cannot_be_read_at_the_end_is_an_error_that_names_it(tmp_path: Path) -> None:
    path, errors = tmp_path / "metrics.jsonl", list[Exception]()
    path.mkdir()
    reader = JsonLinesReader(path, lambda _: None, lambda _: None, errors.append)
    reader.start()
    reader.finish()
    assert [type(one) for one in errors] == [BadCommandFile]
    assert str(errors[0]) == f"the command's metrics file cannot be read: [Errno 21] Is a directory: '{path}'"


@pytest.mark.parametrize("kind", ["output", "file"])
def test_an_error_in_handing_over_a_report_is_not_lost(tmp_path: Path, kind: str) -> None:
    errors, error = list[Exception](), BadCommandFile("no room for the state")

    def put(_: CommandReport) -> None:
        raise error

    with written_to_a_fifo(b"loss=1\n") as stream:
        path = tmp_path / "metrics.jsonl"
        readers: dict[str, StdoutReader | JsonLinesReader] = {
            "output": StdoutReader(stream, [LOSS], put, pytest.fail, errors.append),
            "file": JsonLinesReader(path, put, pytest.fail, errors.append),
        }
        path.write_text('{"loss": 1}\n')
        readers[kind].start()
        readers[kind].finish()
    assert errors == [error]


def test_the_last_line_that_was_read_says_when_it_was_written(tmp_path: Path) -> None:
    """A state which the command saves after its line is later than the line, however late the line is read."""
    found, (reading, writing) = list[CommandReport](), open_fifo()
    with open(reading, "rb", buffering=0) as stream:  # noqa: PTH123 - a descriptor
        reader = StdoutReader(stream, [LOSS], found.append, pytest.fail, unexpected)
        reader.start()
        for loss in (1, 2):
            before = saved(tmp_path / "before")
            os.write(writing, f"loss={loss}\n".encode())
            after = saved(tmp_path / "after")
            until(lambda: len(found) == loss, "the line is read")  # noqa: B023 - called here
            line = found[-1].line
            assert line
            assert before <= line.at_ns <= after
        os.close(writing)
        reader.finish()


def test_a_line_with_another_one_behind_it_gets_no_state() -> None:
    found = list[CommandReport]()
    with written_to_a_fifo(b"loss=1\nloss=2\nloss=3\n") as stream:
        reader = StdoutReader(stream, [LOSS], found.append, pytest.fail, unexpected)
        reader.start()
        reader.finish()
    assert [one.line is not None for one in found] == [False, False, True]


def test_a_line_whose_output_has_gone_on_before_it_was_read_gets_no_state() -> None:
    """What follows it may have been written after the next state was saved."""
    found = list[CommandReport]()
    with written_to_a_fifo(b"loss=1\nsaved\n") as stream:
        reader = StdoutReader(stream, [LOSS], found.append, pytest.fail, unexpected)
        reader.start()
        reader.finish()
    assert [one.line for one in found] == [None]


def test_of_a_file_the_last_line_says_when_it_was_written(tmp_path: Path) -> None:
    path, found = tmp_path / "metrics.jsonl", list[CommandReport]()
    reader = JsonLinesReader(path, found.append, lambda _: None, unexpected)
    path.write_text('{"loss": 1}\n{"loss": 2}\n')
    reader.start()
    reader.finish()
    assert [one.line.at_ns if one.line else None for one in found] == [None, path.stat().st_mtime_ns]


def saved(path: Path) -> int:
    path.touch()
    return path.stat().st_mtime_ns
