"""The arithmetic of costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.cost import AttemptTimes, Cost
from service.domain.cost_summary import summary
from trainer.wire import PhaseSeconds

SECONDS = st.floats(0, 1e6)
PHASES = st.builds(PhaseSeconds, data=SECONDS, training=SECONDS, checkpointing=SECONDS, reporting=SECONDS, idle=SECONDS)
COSTS = st.builds(Cost, *[st.none() | SECONDS] * 7, *[SECONDS] * 3)


def held(cost: Cost) -> float:
    """The seconds from the claim to the end, by phases."""
    return sum(cost.to_json().values()) - (cost.waiting_seconds or 0) - cost.worker_seconds - cost.gpu_seconds


@given(st.none() | SECONDS, SECONDS, SECONDS, st.none() | SECONDS, st.none() | PHASES)
def test_the_phases_are_together_the_time_of_the_attempt_unless_more_was_told(
    waiting: float | None, elapsed: float, holding: float, starting: float | None, phases: PhaseSeconds | None
) -> None:
    cost = AttemptTimes(waiting, elapsed, holding, starting, phases).cost(3, 0.5)
    told = phases.total if phases is not None else 0.0
    assert elapsed - 0.02 <= held(cost) <= max(elapsed, elapsed + told) + 0.02
    if told + (starting or 0) <= elapsed:
        assert held(cost) == pytest.approx(elapsed, abs=0.02)
    assert (cost.worker_seconds, cost.gpu_seconds) == (3 * holding, 1.5 * holding)
    assert min(cost.to_json().values()) >= 0


@given(COSTS, COSTS)
def test_a_sum_takes_what_is_not_known_for_nothing(first: Cost, second: Cost) -> None:
    both = (first + second).to_json()
    assert both.keys() == first.to_json().keys() | second.to_json().keys()
    for name, seconds in both.items():
        assert seconds == pytest.approx((getattr(first, name) or 0) + (getattr(second, name) or 0), abs=0.01)


def test_a_stored_cost_is_read_again_also_with_fields_of_a_later_version() -> None:
    cost = Cost(training_seconds=1.5, worker_seconds=3.0)
    assert Cost.from_json(cost.to_json() | {"lunch_seconds": 1.0}) == cost
    assert Cost.from_json(None) == Cost()


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ({}, "0 worker-seconds"),
        ({"waiting_seconds": 9.0, "worker_seconds": 0.5, "unknown_seconds": 0.5}, "0.5 worker-seconds: unknown 100 %"),
        (
            {"starting_seconds": 24.5, "training_seconds": 75.0, "idle_seconds": 0.4, "worker_seconds": 199.8},
            "3.33 worker-minutes: training 75 %, starting 25 %",
        ),
        (
            {"training_seconds": 7200.0, "data_seconds": None, "worker_seconds": 28800.0, "gpu_seconds": 7200.0},
            "8 worker-hours, 2 GPU-hours: training 100 %",
        ),
    ],
)
def test_a_cost_in_words_has_its_largest_phase_first(cost: dict[str, float | None], words: str) -> None:
    assert summary(cost) == words


def test_gpu_hours_are_shown_beside_their_limit() -> None:
    cost = {"training_seconds": 1800.0, "worker_seconds": 1800.0, "gpu_seconds": 1800.0}
    assert summary(cost, max_gpu_hours=40) == "30 worker-minutes, 0.5 of 40 GPU-hours: training 100 %"
