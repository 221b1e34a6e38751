"""A training function for Transformers, as in Ray Train's documentation, with a tiny model of its own.

Each trial chooses the precision of Accelerate, which keeps its choice for as long as the process lives.
"""

import os
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from ray.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


def train_fn(config: dict[str, Any]) -> None:
    assert Accelerator(mixed_precision=config["precision"]).mixed_precision == config["precision"]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=16, max_position_embeddings=8, **sizes))
    data = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(i % 2)} for i in range(8)]
    arguments = TrainingArguments(
        output_dir="outputs",
        learning_rate=config["lr"],
        max_steps=2,
        save_steps=1,
        logging_steps=1,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[RayTrainReportCallback()])
    prepare_trainer(trainer).train()
    with Path(config["record"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
