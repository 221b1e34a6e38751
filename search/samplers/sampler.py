"""The contract of a sampler. A new sampler is a subclass in a file of its own and a line in the registry."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, Literal, Protocol

from pydantic import ConfigDict

from search.json_types import JsonModel
from search.mistakes import Mistake
from search.plugins import why_failed
from search.problem import Feature, Observation, Problem
from search.space.space import Params

Source = Literal["start_up", "model", "grid", "sequence", "random", "prior", "incumbent", "warm_start"]
"""What a proposal comes from: `start_up` is a draw before the sampler's model has enough trials to learn from.

Those of spaces with priors are also from a `prior`, or close to the best trial so far, the `incumbent`. With a
`warm_start` some are from an earlier experiment.
"""


class LibraryMissing(Exception):
    """A library is not installed that the sampler proposes with. Another process may have it."""


class Proposer(Protocol):
    """A search in progress. It may have two methods for its newest proposal, that of trial `number`.

    `source(number) -> Source` tells what it comes from, and `estimate(number, params) -> Estimate | None` what its
    model expects of it; None if the proposal was not `params`.
    """

    def learn(self, observation: Observation) -> None:
        """Add a trial, or replace what was known of the trial with this number."""

    def propose(self, number: int) -> Params:
        """The params of trial `number`: a function of what was learned, in any order. Changes nothing.

        What was learned of trial `number` itself does not count. Raises SpaceExhausted when no configuration is left.
        """


class Sampler(JsonModel, ABC):
    """The fields are the sampler's options, named as in Optuna."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unsupported: ClassVar[frozenset[Feature]] = frozenset()
    drawn_at_random: ClassVar[frozenset[Feature]] = frozenset()
    """Parameters with these features are drawn at random, whatever was learned of them."""
    learns: ClassVar[bool] = True
    """Whether proposals depend on other trials."""
    learns_from_partial_params: ClassVar[bool] = False
    """Whether it learns from trials of which some parameters are not known."""
    is_exhaustive: ClassVar[bool] = False
    """Whether it tries each configuration once, and decides itself when one may be repeated."""
    may_repeat: ClassVar[bool] = False
    """Whether it may repeat a configuration exactly although the space is continuous."""
    takes_priors: ClassVar[bool] = True
    """Whether proposals from the parameters' priors may take the place of some of its own."""

    library: ClassVar[str | None] = None
    """A library that it imports when it proposes, and that not every service has."""

    @classmethod
    def missing(cls) -> str | None:
        """The library that the sampler lacks in this process, as a sentence; None if it has all that it needs."""
        if cls.library is None or _installed(cls.library):
            return None
        return f"needs the library {cls.library}, which this service does not have"

    @property
    def lacking(self) -> str | None:
        """As `missing`, also of a sampler whose package is gone, or has other options than before. Never raises."""
        return lacking_of(type(self))

    @classmethod
    def import_library(cls) -> None:
        """Import what takes seconds, if anything does: called in the background, so that no proposal waits for it."""

    def mistakes_with(self, problem: Problem) -> list[Mistake]:  # noqa: ARG002
        """Why the options do not suit the problem, at paths from the experiment's spec; empty if they do."""
        return []

    def warnings_with(self, problem: Problem) -> list[Mistake]:  # noqa: ARG002
        """What the problem may not be meant to have with this sampler, at paths from the experiment's spec.

        `curve_score` of the problem is decided.
        """
        return []

    def gains_by_curve_score(self, problem: Problem) -> bool:  # noqa: ARG002
        """Whether it ranks trials by the curve score, unless the specification says otherwise: what was measured."""
        return False

    def startup_count(self, problem: Problem) -> int:  # noqa: ARG002
        """After how many trials its model starts."""
        return 0

    @property
    def learns_from_pruned_trials(self) -> bool:
        return True

    def chooses(self, problem: Problem) -> "ChosenSampler | None":  # noqa: ARG002
        """The sampler that proposes instead of this one."""
        return None

    @abstractmethod
    def proposer(self, problem: Problem, seed: int) -> Proposer:
        """A proposer that has learned nothing; all its random numbers are derived from the seed."""


@dataclass(frozen=True)
class ChosenSampler:
    """`reason` is a sentence for the user; None if the user named the sampler.

    `ends_with_space`: the search ends when each configuration has been tried once, although the sampler itself could
    go on.
    """

    name: str
    sampler: Sampler
    reason: str | None = None
    ends_with_space: bool = False

    @property
    def is_exhaustive(self) -> bool:
        """Whether each configuration is tried once, and the search ends then."""
        return self.ends_with_space or self.sampler.is_exhaustive


def lacking_of(kind: type[Sampler]) -> str | None:
    """As `kind.missing()`. If that raises, what it raises, as the predicate of a sentence."""
    try:
        return kind.missing()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is asked for in lists of all experiments
        return why_failed("when asked what it needs, it", error)


def _installed(library: str) -> bool:
    """Whether it can be imported. It is not imported."""
    return find_spec(library) is not None


def source_of(proposer: Proposer, number: int) -> Source:
    """What the proposal of trial `number` comes from; a model, if the proposer does not tell."""
    told: Callable[[int], Source] | None = getattr(proposer, "source", None)
    return "model" if told is None else told(number)


def too_large(option: str, value: int, maximum: int) -> list[Mistake]:
    """For an option that would use up the service's memory or time.

    The limit is checked when an experiment is submitted or changed. A limit on the field would be checked whenever the
    spec is read, so that experiments submitted before the limit existed could not go on.
    """
    return [Mistake(("search", "options", option), f"must be at most {maximum:,}")] if value > maximum else []
