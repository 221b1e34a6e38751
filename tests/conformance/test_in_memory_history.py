"""The history in memory keeps the contract of a history."""

from dataclasses import dataclass, field

import pytest

from search.early_stopping import History, InMemoryHistory, Rule
from tests.conformance.history import HistoryConformance


@dataclass
class InMemoryExperiment:
    history: InMemoryHistory = field(default_factory=InMemoryHistory)

    def report(self, number: int, step: int, value: float) -> None:
        self.history.curves[number][step] = value

    def of(self, number: int, previous_step: int | None = None) -> History:  # noqa: ARG002
        return self.history.of(number)

    def complete(self, number: int, rule: Rule) -> None:
        curve = self.history.curves[number]
        self.history.complete(rule, number, curve[max(curve)])

    def reopen(self, number: int, rule: Rule) -> None:
        self.history.reopen(rule, number, bracket=None)


class TestInMemoryHistory(HistoryConformance):
    @pytest.fixture
    def experiment(self) -> InMemoryExperiment:
        return InMemoryExperiment()
