"""The schedule is a function of its seed, and strikes everybody; a journal is read to its last whole line."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos import journals
from tests.chaos.schedule import WEIGHTS, Victim, schedule

EVERYBODY = list(Victim)
LINE = {"at": 1.5, "did": "report", "step": 3, "run": "pace-0-x-00ab/trial-4-attempt-2", "rank": 1, "pid": 17}


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another() -> None:
    assert schedule(7, 300, EVERYBODY) == schedule(7, 300, EVERYBODY)
    assert schedule(7, 300, EVERYBODY) != schedule(8, 300, EVERYBODY)


def test_a_longer_schedule_begins_as_a_shorter_one() -> None:
    short = schedule(7, 60, EVERYBODY)
    assert schedule(7, 300, EVERYBODY)[: len(short)] == short


@pytest.mark.parametrize("seed", range(20))
def test_every_round_strikes_everybody_in_time_and_as_often_as_it_must(seed: int) -> None:
    kills = schedule(seed, 300, EVERYBODY, gap=(4, 8))
    in_a_round = sum(weight.times for weight in WEIGHTS.values())
    assert Counter(kill.victim for kill in kills[:in_a_round]) == {one: WEIGHTS[one].times for one in EVERYBODY}
    gaps = [later.at - kill.at for kill, later in pairwise(kills)]
    assert all(3.9 <= gap <= 8.1 for gap in gaps)
    assert kills[-1].at < 300
    assert all(kill.variant in WEIGHTS[kill.victim].variants for kill in kills)


def test_nobody_is_struck_who_was_not_named() -> None:
    assert {kill.victim for kill in schedule(1, 300, [Victim.AGENT, Victim.SLOT])} == {Victim.AGENT, Victim.SLOT}


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(json.dumps(LINE) + "\n" + json.dumps(LINE)[:30])
    (read,) = journals.read(tmp_path)
    assert (read.experiment_id, read.trial, read.attempt, read.rank, read.step) == ("x-00ab", 4, 2, 1, 3)


def test_the_lines_of_all_ranks_are_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(json.dumps(LINE) + "\n")
    (tmp_path / "two.jsonl").write_text(json.dumps({**LINE, "at": 1.0, "rank": 0}) + "\n")
    assert [line.rank for line in journals.read(tmp_path)] == [0, 1]
    assert [line.rank for line in journals.last_lines(tmp_path)] in ([0, 1], [1, 0])
