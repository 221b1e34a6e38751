"""What a rank waits for, by a clock that the test sets."""

import pytest

from trainer.phase_times import CHECKPOINTING, DATA, REPORTING, PhaseTimes


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now

    def interrupt_after(self, seconds: float) -> None:
        self.now += seconds
        raise KeyboardInterrupt


def test_each_wait_is_added_to_its_phase_also_when_it_raises() -> None:
    clock = Clock()
    times = PhaseTimes(lambda: 0.25, clock=clock)
    times.begin()
    for phase, seconds in [(REPORTING, 1.0), (CHECKPOINTING, 2.0), (REPORTING, 0.5), (DATA, 0.5)]:
        with pytest.raises(KeyboardInterrupt), times.during(phase):
            clock.interrupt_after(seconds)
        clock.now += 10
    assert times.so_far() == {DATA: 0.75, CHECKPOINTING: 2.0, REPORTING: 1.5}
    assert times.at_end() == {DATA: 0.75, CHECKPOINTING: 2.0, REPORTING: 1.5, "running": 44.0}


def test_the_present_wait_for_a_phase_has_a_beginning() -> None:
    times = PhaseTimes(clock=Clock())
    with times.during(DATA):
        assert (times.since(DATA), times.since(REPORTING)) == (100.0, None)
    assert times.since(DATA) is None


def test_a_function_that_was_never_called_has_no_times() -> None:
    assert PhaseTimes().at_end() == {}


def test_work_that_continues_beside_the_reports_does_not_wait() -> None:
    clock = Clock()
    times = PhaseTimes(waits=False, clock=clock)
    times.begin()
    with times.during(REPORTING):
        clock.now += 5
    assert times.at_end() == {DATA: 0.0, CHECKPOINTING: 0.0, REPORTING: 0.0, "running": 5.0}
