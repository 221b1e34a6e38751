"""Points on a noisy plane, as two datasets of Ray Data. A real function reads files: `ray.data.read_parquet(path)`."""

import numpy as np
import ray.data

ROWS = 1000


def make(config: dict[str, float]) -> dict[str, ray.data.Dataset]:
    """The training set, and the validation set, which `data.split` leaves whole for each worker."""
    points = ray.data.range(ROWS, override_num_blocks=8).map_batches(add_points, fn_kwargs={"noise": config["noise"]})
    train, val = points.filter(lambda row: row["id"] % 5 != 0), points.filter(lambda row: row["id"] % 5 == 0)
    return {"train": train, "val": val}


def add_points(batch: dict[str, np.ndarray], noise: float) -> dict[str, np.ndarray]:
    """Runs in Ray Data's tasks, on any node."""
    rows = np.stack([np.random.default_rng(int(one)).normal(size=4) for one in batch["id"]]).astype(np.float32)
    x, error = rows[:, :3], rows[:, 3]
    return {"id": batch["id"], "x": x, "y": x @ np.array([1.0, -2.0, 0.5], np.float32) + noise * error}
