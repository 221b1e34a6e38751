"""Parameters and metrics as text."""

from typing import Any

import pytest
from rich.console import Console

from service.cli.terminal import terminal_tables
from service.cli.terminal.value_texts import float_text, parameters, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        ("true", '"true"'),
        (1, "1"),
        ("1", '"1"'),
        (None, "null"),
        ("null", '"null"'),
        ('"quoted"', '"\\"quoted\\""'),
        ("", '""'),
        ("sgd", "sgd"),
        ("None", "None"),
        ("NaN", "NaN"),
        ([1, "ä"], '[1, "ä"]'),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_a_value_has_the_spelling_of_json_and_a_text_is_bare_if_it_reads_as_no_other(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_parameters_have_short_floats() -> None:
    shown = parameters({"lr": 0.0123456, "layers": 3, "optimizer": "sgd", "nesterov": True, "decay": None})
    assert shown == "lr=0.01235, layers=3, optimizer=sgd, nesterov=true, decay=null"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1796123456.789, "1796123457"),
        (-1e12, "-1000000000000"),
        (1234567.0, "1234567"),
        (0.123456789, "0.123457"),
        (1e15, "1e+15"),
        (999999.7, "1000000"),
        (1e-9, "1e-09"),
        (float("inf"), "inf"),
    ],
)
def test_a_large_number_has_all_digits_before_the_point(value: float, text: str) -> None:
    assert float_text(value, 6) == text


def test_reports_show_metrics_with_six_digits() -> None:
    one = {"step": 1, "metrics": {"time": 1796123456.789, "loss": 0.123456789}, "attempt": 1, "at": "2026-01-01T00:00"}
    console = Console(width=100, record=True)
    console.print(terminal_tables.reports([one]))
    assert "time=1796123457, loss=0.123457" in console.export_text()
