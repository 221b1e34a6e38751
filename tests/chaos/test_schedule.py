"""The schedule is a function of its seed, and hits every target; a journal is read up to its last complete line."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos.evidence import journals
from tests.chaos.faults.schedule import MOST_PICK, WEIGHTS, Target, schedule

ALL_TARGETS = list(Target)
LINE = {"at": 1.5, "did": "report", "step": 3, "run": "pace-0-x-00ab/trial-4-attempt-2", "rank": 1, "pid": 17}


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another() -> None:
    assert schedule(7, 300, ALL_TARGETS) == schedule(7, 300, ALL_TARGETS)
    assert schedule(7, 300, ALL_TARGETS) != schedule(8, 300, ALL_TARGETS)


def test_a_longer_schedule_begins_as_a_shorter_one() -> None:
    short = schedule(7, 60, ALL_TARGETS)
    assert schedule(7, 300, ALL_TARGETS)[: len(short)] == short


@pytest.mark.parametrize("seed", range(20))
def test_every_round_hits_every_target_in_time_and_as_often_as_its_weight(seed: int) -> None:
    faults = schedule(seed, 300, ALL_TARGETS, gap=(4, 8))
    in_a_round = sum(weight.times for weight in WEIGHTS.values())
    assert Counter(kill.target for kill in faults[:in_a_round]) == {one: WEIGHTS[one].times for one in ALL_TARGETS}
    gaps = [later.at - kill.at for kill, later in pairwise(faults)]
    assert all(3.9 <= gap <= 8.1 for gap in gaps)
    assert faults[-1].at < 300
    assert all(kill.variant in WEIGHTS[kill.target].variants for kill in faults)


def test_every_pick_selects_one_of_the_processes() -> None:
    assert max(fault.pick for fault in schedule(9214, 40_000, ALL_TARGETS)) == MOST_PICK


def test_only_the_given_targets_are_hit() -> None:
    assert {kill.target for kill in schedule(1, 300, [Target.AGENT, Target.SLOT])} == {Target.AGENT, Target.SLOT}


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(json.dumps(LINE) + "\n" + json.dumps(LINE)[:30])
    (read,) = journals.read(tmp_path)
    assert (read.experiment_id, read.trial, read.attempt, read.rank, read.step) == ("x-00ab", 4, 2, 1, 3)


def test_the_lines_of_all_ranks_are_sorted_by_time(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(json.dumps(LINE) + "\n")
    (tmp_path / "two.jsonl").write_text(json.dumps({**LINE, "at": 1.0, "rank": 0}) + "\n")
    assert [line.rank for line in journals.read(tmp_path)] == [0, 1]
    assert [line.rank for line in journals.last_lines(tmp_path)] in ([0, 1], [1, 0])
