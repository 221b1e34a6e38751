"""Parameters and metrics as text."""

from typing import Any

import pytest

from service.cli.terminal.value_texts import parameters, value_text


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
