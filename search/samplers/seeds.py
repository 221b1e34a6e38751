"""Seeds that are derived from other seeds."""

import numpy as np


def derived_seed(seed: int, *numbers: int) -> int:
    """A seed of 32 bits for Optuna's samplers, such as that of one trial. Trials of a warm start number below 0."""
    return int(np.random.SeedSequence((seed, *(number % 2**32 for number in numbers))).generate_state(1)[0])
