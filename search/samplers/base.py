"""The contract of a sampler. A new one is a subclass here and a line in the registry."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict

from search.mistakes import Mistake
from search.problem import Need
from search.space.space import Params

if TYPE_CHECKING:
    from search.problem import Observation, Problem, Setting


class Proposer(Protocol):
    """A search under way."""

    def learn(self, observation: "Observation") -> None:
        """Take in a trial, in place of what was known of its number."""

    def propose(self, number: int) -> Params:
        """The params of trial `number`, a function of what was learned, in whatever order. Changes nothing."""


class Sampler(BaseModel, ABC):
    """Its fields are its options, named as in Optuna."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cannot: ClassVar[frozenset[Need]] = frozenset()
    takes_parts: ClassVar[bool] = False
    """Whether it learns from configurations of which some parameters are not known."""

    def unsuited(self, setting: "Setting") -> list[Mistake]:  # noqa: ARG002
        """Why its options do not go with the experiment, at paths from the spec's root; empty if they do."""
        return []

    @abstractmethod
    def proposer(self, problem: "Problem") -> Proposer: ...


def too_large(option: str, value: int, most: int) -> list[Mistake]:
    """For an option that would cost all of the service's memory or time.

    A limit is checked when an experiment is submitted or changed, and not, as a field's, each time that it is read:
    those that were submitted before there was the limit go on.
    """
    return [Mistake(("search", "options", option), f"must be at most {most:,}")] if value > most else []


def stream(seed: int, *numbers: int) -> int:
    """The seed of one proposal's random numbers, for samplers of Optuna (32 bits). Warm starts number below 0."""
    return int(np.random.SeedSequence((seed, *(number % 2**32 for number in numbers))).generate_state(1)[0])
