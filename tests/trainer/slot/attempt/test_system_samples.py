"""What a slot sends of its nodes' load, and when."""

from typing import Any

import pytest

from trainer.slot.attempt.system_samples import ENOUGH, MOST, SEND_SECONDS, SystemSamples, gpu_metrics


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def sequences(samples: list[dict[str, Any]]) -> list[int]:
    return [sample["sequence"] for sample in samples]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def samples(clock: Clock) -> SystemSamples:
    return SystemSamples(clock)


def test_samples_wait_a_minute_for_others_and_have_their_age(samples: SystemSamples, clock: Clock) -> None:
    samples.add(None, {"cpu_utilization_percentage": 5.0})
    clock.now += SEND_SECONDS - 1
    samples.add(1, {"cpu_utilization_percentage": 7.0})
    assert samples.due() == []
    clock.now += 1
    assert samples.due() == [
        {"sequence": 0, "age_seconds": SEND_SECONDS, "metrics": {"cpu_utilization_percentage": 5.0}},
        {"sequence": 1, "age_seconds": 1.0, "node": 1, "metrics": {"cpu_utilization_percentage": 7.0}},
    ]


def test_samples_are_sent_again_until_they_are_confirmed(samples: SystemSamples, clock: Clock) -> None:
    samples.add(None, {})
    clock.now += SEND_SECONDS
    sent = samples.due()
    samples.add(None, {})
    assert sequences(samples.due()) == [0, 1]
    samples.confirm(sent)
    assert (samples.due(), sequences(samples.all())) == ([], [1])


def test_the_end_does_not_wait(samples: SystemSamples) -> None:
    samples.add(None, {})
    assert sequences(samples.all()) == [0]


def test_many_samples_do_not_wait_and_the_oldest_of_too_many_are_dropped(samples: SystemSamples) -> None:
    for _ in range(ENOUGH):
        assert samples.due() == []
        samples.add(None, {})
    assert len(samples.due()) == ENOUGH
    for _ in range(MOST):
        samples.add(None, {})
    assert sequences(samples.due()) == list(range(ENOUGH, ENOUGH + MOST))


GPUS = [
    {"index": str(n), "uuid": f"GPU-{n}abc-def", "metrics": {"utilization_percentage": 10.0 * n}} for n in range(12)
]


@pytest.mark.parametrize(
    ("visible", "values"),
    [
        (set(), []),
        ({"0"}, [0.0]),
        ({"3", "1"}, [10.0, 30.0]),
        ({"11"}, [110.0]),
        ({"GPU-2abc-def", "GPU-5a"}, [20.0, 50.0]),
        ({"MIG-2abc-def", "1"}, [10.0]),
        ({"-1", "GPU-x", ""}, []),
    ],
)
def test_the_gpus_of_the_workers_are_numbered_in_their_order(visible: set[str], values: list[float]) -> None:
    expected = {f"gpu_{n}_utilization_percentage": value for n, value in enumerate(values)}
    assert gpu_metrics(GPUS, visible) == expected
