"""Failures that are alike, whatever the params of their trials."""

import pytest

from service.domain.repeated_failure import repeated_failure
from trainer.wire import Failure, FailureKind


def count(*messages: str) -> int:
    found = repeated_failure([Failure(kind=FailureKind.USER_ERROR, message=one) for one in messages])
    assert found
    return found.count


@pytest.mark.parametrize(
    "messages",
    [
        (
            "the command ended with exit code 2: python train.py --x 0.0104 --opt adam (rank 0 of 1)",
            "the command ended with exit code 2: python train.py --x 3e-05 --opt sgd (rank 0 of 1)",
        ),
        (
            "ValueError: cannot use x=0.031 (rank 0 of 2, train.py:4)",
            "ValueError: cannot use x=-1 (rank 1 of 2, train.py:4)",
        ),
        ("ValueError: can't use 'adam' (rank 0 of 1, t.py:1)", "ValueError: can't use 'sgd' (rank 0 of 1, t.py:1)"),
        ("KeyError: 'adam' (rank 0 of 1, nets/cnn.py:12)", "KeyError: 'sgd' (rank 0 of 1, nets/cnn.py:12)"),
    ],
)
def test_params_in_the_message_make_no_difference(messages: tuple[str, str]) -> None:
    assert count(*messages) == 2


@pytest.mark.parametrize(
    "messages",
    [
        (
            "the command ended with exit code 2: train (rank 0 of 1)",
            "the command ended with exit code 1: train (rank 0 of 1)",
        ),
        ("KeyError: 'x' (rank 0 of 1, train.py:4)", "KeyError: 'x' (rank 0 of 1, train.py:5)"),
        ("KeyError: 'x' (rank 0 of 1, train.py:4)", "ValueError: 'x' (rank 0 of 1, train.py:4)"),
    ],
)
def test_other_failures_are_told_from_each_other(messages: tuple[str, str]) -> None:
    assert count(*messages) == 1
