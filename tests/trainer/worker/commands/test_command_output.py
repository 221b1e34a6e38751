"""The last lines of a command's output."""

from pathlib import Path

import pytest

from trainer.worker.commands import command_output
from trainer.worker.commands.command_output import CommandOutput, last_lines


def test_the_last_lines_are_few_and_not_empty() -> None:
    text = "\n\n".join(f"line {number}" for number in range(50))
    assert last_lines(text).splitlines() == [f"line {number}" for number in range(30, 50)]


def test_long_lines_are_cut_at_their_beginning() -> None:
    shown = last_lines("x" * 100_000 + "the cause")
    assert shown.endswith("x" * 100 + "the cause")
    assert len(shown) == command_output.MAX_CHARACTERS


def test_of_a_progress_bar_the_last_state_is_shown() -> None:
    assert last_lines("1/3\r2/3\r3/3\r\nValueError: no\r\n") == "3/3\nValueError: no"


@pytest.mark.parametrize(("error", "shown"), [("cause\n", "cause\n"), (" \n", "output\n"), ("", "output\n")])
def test_the_output_counts_where_nothing_is_in_the_standard_error(tmp_path: Path, error: str, shown: str) -> None:
    """What was there before does not count."""
    files = {tmp_path / "err": error, tmp_path / "out": "output\n"}
    for path in files:
        path.write_text("earlier\n")
    output = CommandOutput({str(path): path.stat().st_size for path in files})
    for path, text in files.items():
        path.write_text("earlier\n" + text)
    assert output.end() == shown
