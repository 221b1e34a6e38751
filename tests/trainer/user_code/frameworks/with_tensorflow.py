"""A training function for TensorFlow with the strategy of Ray Train's documentation.

Ray Train sets TF_USE_LEGACY_KERAS, so `tf.keras` would need the package tf_keras.
"""

import os
from pathlib import Path
from typing import Any

import ray.train
import tensorflow as tf


def train_fn(config: dict[str, Any]) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(0.0)
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = (weight - 1.0) ** 2
        weight.assign_sub(config["lr"] * tape.gradient(loss, weight))
        ray.train.report({"loss": float(loss)})
    with Path(config["record"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
