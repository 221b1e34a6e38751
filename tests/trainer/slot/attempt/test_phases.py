"""The seconds of an attempt by phase, from what its ranks have told."""

import pytest

from trainer.slot.attempt.attempt_clock import phase_seconds


def test_the_phases_are_means_over_the_ranks() -> None:
    ranks = [
        {"data": 1.0, "checkpointing": 2.0, "reporting": 3.0, "running": 50.0},
        {"data": 3.0, "checkpointing": 0.0, "reporting": 1.0, "running": 90.0},
    ]
    found = phase_seconds(100.0, 95.0, ranks, 2)
    assert found == {"data": 2.0, "checkpointing": 1.0, "reporting": 2.0, "training": 65.0, "idle": 30.0}


def test_a_rank_that_has_not_told_its_end_runs_until_the_end_of_the_workers() -> None:
    ranks = [{"data": 0.0, "checkpointing": 4.0, "reporting": 0.0}]
    found = phase_seconds(100.0, 90.0, ranks, 2)
    assert found == {"data": 0.0, "checkpointing": 2.0, "reporting": 0.0, "training": 88.0, "idle": 10.0}


def test_clocks_that_disagree_make_no_phase_negative() -> None:
    found = phase_seconds(1.0, 1.0, [{"data": 0.0, "checkpointing": 2.0, "reporting": 0.0, "running": 3.0}], 1)
    assert (found["training"], found["idle"]) == (0.0, 0.0)


@pytest.mark.parametrize("ranks", [[], [{"data": 0.5, "checkpointing": 0.5, "reporting": 1.0, "running": 7.5}]])
def test_the_phases_are_together_the_time_since_the_function_began(ranks: list[dict[str, float]]) -> None:
    assert sum(phase_seconds(10.0, 9.0, ranks, 4).values()) == pytest.approx(10.0)
