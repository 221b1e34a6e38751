"""A training function for LightGBM, as in Ray Train's documentation: each rank has a part of the data."""

import os
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import ray.train
from ray.train.lightgbm import RayTrainReportCallback, get_network_params


def train_fn(config: dict[str, Any]) -> None:
    context = ray.train.get_context()
    features = np.random.default_rng(0).random((200, 3))[context.get_world_rank() :: context.get_world_size()]
    data = lightgbm.Dataset(features, label=features[:, 0] > 0.5)
    network = get_network_params()
    assert network["num_machines"] == context.get_world_size()
    params = {
        "objective": "binary",
        "tree_learner": "data_parallel",
        "pre_partition": True,
        "learning_rate": config["lr"],
        "num_threads": 1,
        **network,
    }
    lightgbm.train(params, data, num_boost_round=2, valid_sets=[data], callbacks=[RayTrainReportCallback()])
    with Path(config["record"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
