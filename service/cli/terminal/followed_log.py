"""Following the log of an attempt in the terminal, also while the service starts again."""

import re
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import eq
from typing import Any

from service.cli.client.answers import Refused, Unreachable
from service.cli.client.client import Client
from service.cli.terminal.outage import POLL_SECONDS, Outage

FIRST_ATTEMPT = 1
"""The one that the service waits for when the log of a queued trial is followed."""

BOOKMARK_LINES = 100
"""The number of last lines of a rank by which its place is found again in a tail whose start is not known."""

LINE = re.compile(r"[^\r\n]*[\r\n]")
"""A progress bar ends its lines with carriage returns."""

RANK = re.compile(r"\[rank \d+\] ")


def followed_log(
    client: Client, trial: str, rank: int | None, tail: int | None, attempt: int | None, outage: Outage
) -> Iterator[str]:
    """Yield the log of the attempt until that ends, each line once.

    `attempt`: its number; None for the newest, or for the first of a trial that has none yet. Raises Unreachable and
    Refused; but a log that was found is followed across an outage.
    """
    first = client.trial(trial)
    number = attempt or _newest_attempt(first)
    shown: dict[str, Any] | None = first
    followed = _FollowedLog(is_whole=tail is None)
    while True:
        try:
            if number is None:
                shown = shown or client.trial(trial)
                number = FIRST_ATTEMPT if shown["attempts"] else None
            followed.is_whole = tail is None or followed.start is not None
            since = followed.start if followed.start is not None else tail if followed.is_empty else None
            chunks = client.logs(trial, rank, since, number, follow=True)
            yield from followed.new_lines(_noted(client, chunks, followed, outage))
            shown = client.trial(trial)
            outage.over()
        except (Unreachable, Refused) as error:
            outage.seen(error)
            shown = None
        else:
            if not _may_get_output(shown, number or FIRST_ATTEMPT):
                yield followed.rest
                return
        time.sleep(POLL_SECONDS)


def _noted(client: Client, chunks: Iterable[str], followed: "_FollowedLog", outage: Outage) -> Iterator[str]:
    """An outage is over when the first chunk comes, with the head of the answer: output may come hours later.

    The head also says where a tail begins; before it, `client.log_start` is that of another log.
    """
    for chunk in chunks:
        outage.over()
        followed.start = client.log_start if followed.start is None else followed.start
        yield chunk


def _newest_attempt(trial: dict[str, Any]) -> int | None:
    return max((attempt["number"] for attempt in trial["attempts"]), default=None)


def _may_get_output(trial: dict[str, Any], attempt: int) -> bool:
    """Whether the attempt, or a trial without any, may still get output: the service has ended the log as it stops."""
    if trial["status"] == "queued" and not trial["attempts"]:
        return True
    return any(one["number"] == attempt and one["ended_at"] is None for one in trial["attempts"])


@dataclass
class _Place:
    """A place in the log of a rank: how many lines are before it, and the last of them."""

    count: int = 0
    newest: deque[str] = field(default_factory=lambda: deque(maxlen=BOOKMARK_LINES))

    def add(self, line: str, *, may_be_cut: bool = False) -> None:
        """`may_be_cut`: a tail may begin within a line, which is never seen again as it was."""
        self.count += 1
        if self.count > 1 or not may_be_cut:
            self.newest.append(line)

    def ends_as(self, other: "_Place") -> bool:
        own = islice(reversed(self.newest), len(other.newest))
        return all(map(eq, own, reversed(other.newest)))


@dataclass
class _FollowedLog:
    """`is_whole`: it is followed from a start that is known, so that the number of a line says where it is."""

    is_whole: bool
    start: str | None = None
    """of its first tail, to ask for after an outage; None if the service has not said it"""
    rest: str = ""
    """of the last log: what follows its last whole line"""
    _ends: dict[str, _Place] = field(default_factory=lambda: defaultdict(_Place))

    @property
    def is_empty(self) -> bool:
        return not self._ends

    def new_lines(self, chunks: Iterable[str]) -> Iterator[str]:
        """Yield the lines beyond those that were yielded before. Only the first log may begin at its tail."""
        missed = dict(self._ends)
        seen: dict[str, _Place] = defaultdict(_Place)
        for lines in self._whole_lines(chunks):
            yield "".join(line for line in LINE.findall(lines) if self._is_new(line, missed, seen))

    def _is_new(self, line: str, missed: dict[str, _Place], seen: dict[str, _Place]) -> bool:
        """`missed`: where the ranks ended whose ends have not been seen again."""
        found = RANK.match(line)
        rank = found[0] if found else ""
        if rank not in missed:
            self._ends[rank].add(line, may_be_cut=not self.is_whole)
            return True
        seen[rank].add(line)
        if self._is_reached(missed[rank], seen[rank]):
            del missed[rank]
        return False

    def _whole_lines(self, chunks: Iterable[str]) -> Iterator[str]:
        parts: list[str] = []
        self.rest = ""
        for chunk in chunks:
            end = max(chunk.rfind("\n"), chunk.rfind("\r")) + 1
            if end:
                yield "".join((*parts, chunk[:end]))
                parts.clear()
            parts.append(chunk[end:])
        self.rest = "".join(parts)

    def _is_reached(self, end: _Place, seen: _Place) -> bool:
        return seen.count == end.count if self.is_whole else seen.count >= end.count and seen.ends_as(end)
