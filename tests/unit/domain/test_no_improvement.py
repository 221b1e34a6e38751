"""Whether an experiment still improves."""

from service.domain.no_improvement import EndedTrial, describe_stagnation

BEST = EndedTrial(3, 0.9)


def test_a_trial_that_beats_the_best_by_more_than_min_delta_is_an_improvement() -> None:
    assert describe_stagnation([EndedTrial(5, 0.95), EndedTrial(4, 0.1)], BEST, "maximize", "accuracy", 0.04) is None
    assert describe_stagnation([EndedTrial(5, 0.85)], BEST, "minimize", "loss", 0.04) is None


def test_stagnation_is_described_with_its_figures() -> None:
    sentence = describe_stagnation([EndedTrial(5, 0.94), EndedTrial(4, 0.1)], BEST, "maximize", "accuracy", 0.05)
    assert sentence == (
        "the last 2 finished trials did not improve on accuracy 0.9 (trial 3) by more than 0.05; "
        "the best of them: 0.94 (trial 5) (limits.no_improvement)"
    )
    assert describe_stagnation([EndedTrial(5, 0.9)], BEST, "maximize", "accuracy", 0.0) == (
        "the last finished trial did not improve on accuracy 0.9 (trial 3); "
        "the best of them: 0.9 (trial 5) (limits.no_improvement)"
    )


def test_a_trial_that_was_stopped_early_is_no_improvement() -> None:
    sentence = describe_stagnation([EndedTrial(5, 1.0, is_eligible=False)], BEST, "maximize", "accuracy", 0.0)
    assert sentence
    assert "none of them" in sentence


def test_without_a_best_before_there_is_nothing_to_improve_on() -> None:
    assert describe_stagnation([EndedTrial(5, 0.9)], None, "maximize", "accuracy", 0.0) is None
