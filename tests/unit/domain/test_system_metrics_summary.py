"""How busy nodes and GPUs were, summed up."""

from service.domain.system_metrics_summary import Utilization

SAMPLES = (
    {"cpu_utilization_percentage": 10.0, "gpu_0_utilization_percentage": 90.0, "gpu_1_utilization_percentage": 20.0},
    {"cpu_utilization_percentage": 40.0, "gpu_0_memory_usage_percentage": 75.0, "gpu_0_power_usage_percentage": 99.0},
)


def test_means_and_peaks_are_those_of_all_values() -> None:
    known = Utilization()
    for sequence, metrics in enumerate(SAMPLES):
        known = Utilization.from_json(known.after(sequence, metrics).to_json())
    assert (known.next_sequence, known.sample_count) == (2, 2)
    assert (known.cpu.mean, known.cpu.peak) == (25.0, 40.0)
    assert (known.gpu.mean, known.gpu.peak) == (55.0, 90.0)
    assert (known.gpu_memory.mean, known.gpu_memory.peak) == (75.0, 75.0)


def test_what_was_never_measured_is_not_known() -> None:
    known = Utilization().after(0, {})
    assert (known.gpu.mean, known.gpu.peak) == (None, None)


def test_what_a_later_version_has_stored_is_ignored() -> None:
    known = Utilization().after(4, SAMPLES[0])
    assert Utilization.from_json({**known.to_json(), "later": 1}) == known
