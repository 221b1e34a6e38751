"""A training function for XGBoost, as in Ray Train's documentation."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from ray.train.xgboost import RayTrainReportCallback


def train_fn(config: dict[str, Any]) -> None:
    features = np.random.default_rng(0).random((100, 3))
    data = xgboost.DMatrix(features, label=features[:, 0] > 0.5)
    params = {"objective": "binary:logistic", "eta": config["lr"], "nthread": 1}
    xgboost.train(params, data, 2, evals=[(data, "train")], callbacks=[RayTrainReportCallback()])
    with Path(config["record"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
