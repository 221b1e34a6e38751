"""The history in memory keeps the contract of a history."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import TypeAdapter

from search.early_stopping import EarlyStoppingSpec, History, InMemoryHistory
from tests.conformance.history import HistoryConformance


@dataclass
class InMemoryExperiment:
    history: InMemoryHistory = field(default_factory=InMemoryHistory)
    # A rule that compares with completed trials.
    rule: Any = field(default_factory=lambda: TypeAdapter(EarlyStoppingSpec).validate_python({"rule": "median"}))

    def report(self, number: int, step: int, value: float) -> None:
        self.history.curves[number][step] = value

    def of(self, number: int, previous_step: int | None = None) -> History:  # noqa: ARG002
        return self.history.of(number)

    def complete(self, number: int) -> None:
        curve = self.history.curves[number]
        self.history.complete(self.rule, number, curve[max(curve)])


class TestInMemoryHistory(HistoryConformance):
    @pytest.fixture
    def experiment(self) -> InMemoryExperiment:
        return InMemoryExperiment()
