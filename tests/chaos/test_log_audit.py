"""The audit of logs: a line that is missing without a note, or is there twice, is named."""

from collections.abc import Callable, Sequence

import pytest

from service.operations.attempts.log_file import CUT_NOTE, GAP_NOTE
from tests.chaos.audit.logs import logs
from tests.chaos.evidence.log_notes import is_note
from tests.chaos.good_run import good_run
from tests.chaos.tampering import in_log

Log = Sequence[str]

GAP = f"[rank 0] {GAP_NOTE.format(1234)}".rstrip()
CUT = f"[rank 0] {CUT_NOTE.format('20 MB')}".rstrip()
END = "[paceline: no heartbeat from agent 'agent-0' for 20 s; output that had not arrived by then is missing]"


def without(*numbers: int) -> Callable[[Log], Log]:
    """Rank 0's log without these lines."""
    return lambda log: [line for line in log if line not in {f"[rank 0] chaos line {one}." for one in numbers}]


def with_note(note: str, before: int, *missing: int) -> Callable[[Log], Log]:
    """Lines are missing in rank 0's log, and a note stands before a line."""
    here = f"[rank 0] chaos line {before}."
    return lambda log: [part for line in without(*missing)(log) for part in ([note, line] if line == here else [line])]


SOUND: dict[str, Callable[[Log], Log]] = {
    "as it was printed": list,
    "a note where lines are missing": with_note(GAP, 5, 3, 4),
    "a note at the end": lambda log: [*without(8, 9)(log), GAP],
    "a quota": lambda log: [*without(7, 8, 9)(log), CUT],
    "an end without its slot": lambda log: [*without(8, 9)(log), END],
    "a line that its journal does not have": lambda log: [*log, "[rank 0] chaos line 10."],
    "half a line before a note": lambda log: [*without(9)(log), "[rank 0] chaos lin", GAP],
}
BROKEN: dict[str, tuple[Callable[[Log], Log], str]] = {
    "lines are missing": (without(3, 4), "the log of rank 0 lacks the lines 3 to 4, without a note"),
    "its end is missing": (without(8, 9), "the log of rank 0 lacks the lines 8 to 9 at its end, without a note"),
    "all of a rank is missing": (
        lambda log: [line for line in log if "[rank 0]" not in line],
        "the log of rank 0 lacks the lines 1 to 9 at its end",
    ),
    "a line is there twice": (lambda log: [*log, log[-1]], "the log of rank 1 has line 9 after line 9"),
    "lines in another order": (lambda log: [*log[2:4], *log[:2], *log[4:]], "has line 1 after line 2"),
    "more than was printed": (
        lambda log: [*log, "[rank 0] chaos line 10.", "[rank 0] chaos line 11."],
        "the log of rank 0 has 11 lines; the rank has printed 9",
    ),
    "a note somewhere else": (
        with_note(GAP, 7, 3, 4),
        "the log of rank 0 lacks the lines 3 to 4, without a note",
    ),
    "a note of another rank": (
        with_note(GAP.replace("rank 0", "rank 1"), 5, 3, 4),
        "the log of rank 0 lacks the lines 3 to 4, without a note",
    ),
    "an end without its slot explains no gap": (
        lambda log: [*without(3)(log), END],
        "the log of rank 0 lacks the lines 3 to 3, without a note",
    ),
}


@pytest.mark.parametrize("what", SOUND)
def test_a_log_with_all_lines_or_a_note_passes(what: str) -> None:
    assert list(logs(in_log(SOUND[what])(good_run()))) == []


@pytest.mark.parametrize("what", BROKEN)
def test_a_line_that_is_missing_or_doubled_is_named(what: str) -> None:
    change, words = BROKEN[what]
    violations = list(logs(in_log(change)(good_run())))
    assert any(words in violation for violation in violations), violations


@pytest.mark.parametrize("line", [GAP, CUT, END])
def test_the_notes_of_the_service_are_known(line: str) -> None:
    assert is_note(line)
