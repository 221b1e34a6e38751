"""Stacks of small networks that train together on one CPU, each with hyperparameters of its own.

Networks of one shape are one batched matrix product instead of many small ones. No network sees another: each has its
own weights, dropout, noise and updates.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

Settings = Mapping[str, Tensor]
"""A value for each network of the stack: `rate`, and where they are used `momentum`, `horizon` (the step at which a
cosine has taken the rate to 0), `decay`, `dropout`, `noise` (in training) and `scale` of the inputs."""


@dataclass(frozen=True)
class Data:
    """Inputs and targets for training, validation and test: the same for all networks."""

    training: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Training:
    """`updates` are made in each of the `steps`, on `batch` examples; `loss` and `measure` return a value a network.

    `measure` is what is reported of the validation and the test data.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    measure: Callable[[Tensor, Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]
    batch: int
    updates: int
    steps: int
    adam: bool = True


class Stack:
    """Networks with the same `sizes` of their layers."""

    def __init__(self, sizes: Sequence[int], settings: Settings, training: Training, seed: int) -> None:
        self._settings, self._training = settings, training
        self._chance = torch.Generator().manual_seed(seed)
        self._count = len(settings["rate"])
        self._weights = [
            part
            for inputs, outputs in pairwise(sizes)
            for part in (
                self._normal(self._count, inputs, outputs) * math.sqrt(2 / inputs),
                torch.zeros(self._count, 1, outputs),
            )
        ]
        self._moments = [(torch.zeros_like(one), torch.zeros_like(one)) for one in self._weights]
        self._updates = 0
        for one in self._weights:
            one.requires_grad_()

    def curves(self, data: Data) -> tuple[Tensor, Tensor]:
        """Train; return the validation values after each step, and the test values at the end, for each network."""
        curve = []
        for _ in range(self._training.steps):
            for _ in range(self._training.updates):
                self._update(*data.training)
            curve.append(self._measured(*data.validation))
        return torch.stack(curve, dim=1), self._measured(*data.test)

    def _update(self, inputs: Tensor, targets: Tensor) -> None:
        chosen = torch.randperm(len(inputs), generator=self._chance)[: self._training.batch]
        losses = self._training.loss(self._outputs(inputs[chosen], trains=True), targets[chosen])
        gradients = torch.autograd.grad(losses.sum(), self._weights)
        self._updates += 1
        rate = self._each("rate") * self._share_of_rate()
        with torch.no_grad():
            for weights, gradient, moments in zip(self._weights, gradients, self._moments, strict=True):
                weights.mul_(1 - (rate * self._each("decay")).clamp(max=1))
                (self._move_by_adam if self._training.adam else self._move)(weights, gradient, moments, rate)

    def _share_of_rate(self) -> Tensor:
        if "horizon" not in self._settings:
            return torch.ones(1)
        done = (self._updates - 1) / self._training.updates / self._each("horizon")
        return (1 + torch.cos(math.pi * done.clamp(max=1))) / 2

    def _move(self, weights: Tensor, gradient: Tensor, moments: tuple[Tensor, Tensor], rate: Tensor) -> None:
        moments[0].mul_(self._each("momentum")).add_(gradient)
        weights.sub_(rate * moments[0])

    def _move_by_adam(self, weights: Tensor, gradient: Tensor, moments: tuple[Tensor, Tensor], rate: Tensor) -> None:
        first, second = moments
        first.lerp_(gradient, 0.1)
        second.lerp_(gradient * gradient, 0.001)
        unbiased = (second / (1 - 0.999**self._updates)).sqrt_().add_(1e-8)
        weights.sub_(rate / (1 - 0.9**self._updates) * first / unbiased)

    @torch.no_grad()
    def _measured(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self._training.measure(self._outputs(inputs), targets)

    def _outputs(self, inputs: Tensor, *, trains: bool = False) -> Tensor:
        values = inputs.expand(self._count, *inputs.shape)
        if "scale" in self._settings:
            values = values * self._each("scale")
        if trains and "noise" in self._settings:
            values = values + self._each("noise") * self._normal(*values.shape)
        for layer in range(0, len(self._weights), 2):
            values = torch.baddbmm(self._weights[layer + 1], values, self._weights[layer])
            if layer + 2 < len(self._weights):
                values = self._training.activation(values)
                if trains and "dropout" in self._settings:
                    values = values * self._kept(values)
        return values

    def _kept(self, values: Tensor) -> Tensor:
        dropout = self._each("dropout")
        return (torch.rand(values.shape, generator=self._chance) >= dropout) / (1 - dropout)

    def _each(self, name: str) -> Tensor:
        return self._settings[name][:, None, None] if name in self._settings else torch.zeros(1)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._chance)
