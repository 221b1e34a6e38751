"""The logs: each line that a rank has printed is there once and in order, or a note says that output is missing."""

from collections.abc import Iterator, Sequence

from tests.chaos.audit.attempts import by_attempt
from tests.chaos.evidence.journals import Line
from tests.chaos.evidence.log_notes import is_end_note
from tests.chaos.evidence.snapshot import Attempt, Snapshot
from tests.chaos.user_code.numbered_lines import NUMBERED

NOTE = None
"""In the place of a number: output is missing here."""


def logs(snapshot: Snapshot) -> Iterator[str]:
    written = by_attempt(snapshot.lines)
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            for attempt in trial.attempts:
                whose = f"{experiment.name}: trial {trial.number}, attempt {attempt.number}"
                lines = written.get((experiment.id, trial.number, attempt.number), [])
                yield from (f"{whose}: {what}" for what in _log(attempt, lines))


def _log(attempt: Attempt, lines: Sequence[Line]) -> Iterator[str]:
    has_end_note = any(map(is_end_note, attempt.log))
    for rank in sorted({line.rank for line in lines}):
        printed = max(line.printed for line in lines if line.rank == rank)
        found = [*_numbers(attempt, rank), *([NOTE] if has_end_note else [])]
        yield from (f"the log of rank {rank} {what}" for what in _mistakes(found, printed))


def _numbers(attempt: Attempt, rank: int) -> list[int | None]:
    """The numbers of the rank's lines, and its notes, as its log has them."""
    own = [line for line in attempt.log if line.startswith(f"[rank {rank}] ")]
    return [int(number[1]) if number else NOTE for number in map(NUMBERED.search, own)]


def _mistakes(found: Sequence[int | None], printed: int) -> Iterator[str]:
    """A rank may have died between its last line and its journal, so that the log has one more than that."""
    last, has_note = 0, False
    for number in found:
        if number is NOTE:
            has_note = True
            continue
        if number <= last:
            yield f"has line {number} after line {last}"
        elif number > last + 1 and not has_note:
            yield f"lacks the lines {last + 1} to {number - 1}, without a note"
        last, has_note = max(last, number), False
    if last < printed and not has_note:
        yield f"lacks the lines {last + 1} to {printed} at its end, without a note"
    if last > printed + 1:
        yield f"has {last} lines; the rank has printed {printed}"
