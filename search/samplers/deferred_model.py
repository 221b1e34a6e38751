"""Startup draws without the sampler's model, whose libraries take seconds to import."""

from collections.abc import Callable

from search.problem import Observation
from search.samplers.estimate import Estimate, estimate_of
from search.samplers.sampler import Proposer, Source, source_of
from search.space.space import Params


class DeferredModel:
    """Proposes by `startup` until `startup_count` trials have shown something, then by the proposer of `create`.

    `startup` draws what that proposer would draw before its model starts. It learns nothing.
    """

    def __init__(self, startup: Proposer, startup_count: int, create: Callable[[], Proposer]) -> None:
        self._startup, self._startup_count, self._create = startup, startup_count, create
        self._observations: dict[int, Observation] = {}
        self._model: Proposer | None = None

    def learn(self, observation: Observation) -> None:
        if self._model is None:
            self._observations[observation.number] = observation
        else:
            self._model.learn(observation)

    def source(self, number: int) -> Source:
        model = self._model_for(number)
        return "start_up" if model is None else source_of(model, number)

    def propose(self, number: int) -> Params:
        return (self._model_for(number) or self._startup).propose(number)

    def estimate(self, number: int, params: Params) -> Estimate | None:
        return None if self._model is None else estimate_of(self._model, number, params)

    def _model_for(self, number: int) -> Proposer | None:
        if self._model is None and self._shown_besides(number) >= self._startup_count:
            self._model = self._create()
            for observation in self._observations.values():
                self._model.learn(observation)
            self._observations.clear()
        return self._model

    def _shown_besides(self, number: int) -> int:
        """At least as many trials as a model can learn from."""
        return sum(
            other != number and (one.status != "running" or bool(one.rungs))
            for other, one in self._observations.items()
        )
