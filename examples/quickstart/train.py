"""The smallest training function to tune: one worker, scikit-learn, a report after each pass over the data."""

from collections.abc import Mapping

import ray.train
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler


def train_fn(config: Mapping[str, float]) -> None:
    features, labels = load_breast_cancer(return_X_y=True)
    split = train_test_split(StandardScaler().fit_transform(features), labels, random_state=0, stratify=labels)
    train_features, validation_features, train_labels, validation_labels = split
    model = SGDClassifier(loss="log_loss", alpha=config["alpha"], learning_rate="constant", eta0=config["eta0"])
    for epoch in range(1, int(config["epochs"]) + 1):
        model.partial_fit(train_features, train_labels, classes=[0, 1])
        accuracy = float(model.score(validation_features, validation_labels))
        ray.train.report({"epoch": epoch, "val_accuracy": accuracy})
