"""Text and numbers that JSON and every database can hold: one rule for the service and the workers."""

import json
import math
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.operations.reports.curve import _storable
from trainer.storable_values import is_storable_text, json_metrics, metrics_for_ray, storable_float, storable_text
from trainer.wire import LogChunk
from trainer.worker.logs.log_follower import OutputFile
from trainer.worker.logs.masker import Masker

TEXTS = [("plain", "plain"), ("a\0b", "a?b"), ("\ud800", "?"), ("\udcff\0", "??"), ("\N{REPLACEMENT CHARACTER}",) * 2]


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_text_is_repaired_in_the_same_way_wherever_it_comes_from(text: str, expected: str) -> None:
    assert storable_text(text) == expected
    assert is_storable_text(text) == (text == expected)
    assert json_metrics({text: [text]})[0] == _storable({text: [text]}) == {expected: [expected]}


def test_text_for_people_is_repaired_on_the_wire() -> None:
    assert LogChunk(rank=0, offset=0, text="a\0b").text == storable_text("a\0b") == "a?b"


FLOATS = [(1.5, 1.5), (math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (1e300, 1e300)]


@pytest.mark.parametrize(("value", "expected"), FLOATS)
def test_a_float_without_a_json_form_becomes_the_same_text_in_the_worker_and_in_the_service(
    value: float, expected: float | str
) -> None:
    assert storable_float(value) == expected
    assert json_metrics({"a": value})[0] == _storable({"a": value}) == {"a": expected}


def test_a_numpy_float_becomes_a_python_float() -> None:
    assert type(storable_float(np.float64(0.5))) is float


def test_numbers_without_a_json_form_become_words_and_the_rest_is_dropped_by_name() -> None:
    values, dropped = json_metrics(
        {"a": np.float64("nan"), "b": float("-inf"), "c": np.int32(2), "d": object(), "e": [1, {"f": 2}]}
    )
    assert values == {"a": "NaN", "b": "-Infinity", "c": 2, "e": [1, {"f": 2}]}
    assert dropped == ["d"]


NUMBERS = [
    (Decimal("0.7"), 0.7),
    (Fraction(1, 2), 0.5),
    (Decimal("NaN"), "NaN"),
    (Decimal("-Infinity"), "-Infinity"),
    (np.longdouble(1), 1.0),  # its item is one again
    (np.float16(0.5), 0.5),
]


@pytest.mark.parametrize(("value", "expected"), NUMBERS)
def test_numbers_of_other_types_become_floats(value: Any, expected: float | str) -> None:
    assert json_metrics({"a": value, "b": [value]}) == ({"a": expected, "b": [expected]}, [])


def test_a_number_that_no_float_can_hold_is_dropped() -> None:
    assert json_metrics({"a": Fraction(10**400), "b": Decimal("sNaN")}) == ({}, ["a", "b"])


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_whole_number_that_no_float_can_hold_is_infinite(digits: int, sign: int) -> None:
    """Python's `json` refuses those of more than 4,300 digits, in the slot and in Ray's controller."""
    value = sign * 10**digits
    assert json_metrics({"a": value, "b": [10**30]}) == ({"a": storable_float(sign * math.inf), "b": [10**30]}, [])
    assert json.loads(json.dumps(metrics_for_ray({"a": value}))) == {"a": sign * math.inf}


class Unreadable:
    size = 1

    def __init__(self, **attributes: str) -> None:
        vars(self).update(attributes)

    def item(self) -> float:
        raise RuntimeError("no item")


def test_what_raises_when_it_is_read_is_dropped_but_an_error_of_the_training_on_a_gpu_is_raised() -> None:
    assert json_metrics({"a": Unreadable(), "b": [Unreadable(device="meta"), 1]}) == ({"b": [1]}, ["a"])
    with pytest.raises(RuntimeError, match="no item"):
        json_metrics({"a": Unreadable(device="cuda:0")})


@pytest.mark.slow  # it imports torch
def test_a_tensor_with_one_element_is_a_number_and_a_larger_one_is_dropped_like_an_array() -> None:
    torch = pytest.importorskip("torch")
    scalar = torch.tensor(0.5, requires_grad=True)
    numbers = {"a": scalar, "b": scalar.to(torch.bfloat16), "c": torch.tensor([[2]]), "d": np.ones((1, 1))}
    assert json_metrics({**numbers, "e": torch.ones(2), "f": torch.ones(0), "g": np.ones(2)}) == (
        {"a": 0.5, "b": 0.5, "c": 2, "d": 1.0},
        ["e", "f", "g"],
    )


def test_metrics_have_no_text_that_a_database_cannot_store() -> None:
    values, _ = json_metrics({"\ud800": "a\0b", "nested": [{"c": "\udcff"}]})
    assert values == {"?": "a?b", "nested": [{"c": "?"}]}


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    cut = storable_text("head" + 5_000 * "x" + "tail", 200)
    assert len(cut) <= 200
    assert cut.startswith("head")
    assert cut.endswith("tail")
    assert "characters left out" in cut


def test_the_text_of_a_log_can_be_stored(tmp_path: Path) -> None:
    path = tmp_path / "worker.out"
    path.touch()
    stream = OutputFile(str(path), Masker(()))
    path.write_bytes(b"a\0b\xff\n")
    assert stream.read() == "a?b\ufffd\n"
    stream.close()


class Stage(IntEnum):
    LAST = 3


class EagerTensor:
    """As one of TensorFlow's."""

    def __init__(self, *values: float) -> None:
        self._values = values

    def numpy(self) -> Any:
        return np.float32(self._values[0]) if len(self._values) == 1 else np.array(self._values)


@pytest.mark.parametrize(("value", "stored"), [(Stage.LAST, 3), (True, True), (EagerTensor(0.5), 0.5)])
def test_a_number_of_a_class_of_its_own_becomes_a_plain_one(value: Any, stored: Any) -> None:
    for values in (json_metrics({"a": value})[0], metrics_for_ray({"a": value})):
        assert values == {"a": stored}
        assert type(values["a"]) is type(stored)


@pytest.mark.parametrize("value", [np.ma.masked, np.ma.array([0.5], mask=[True])])
def test_a_masked_value_is_not_a_number(value: Any) -> None:
    assert json_metrics({"a": value}) == ({"a": "NaN"}, [])


def test_masked_arrays_with_a_value_and_tensors_of_two_elements_are_as_others() -> None:
    values = {
        "a": np.ma.array([0.5], mask=[False]),
        "b": EagerTensor(1, 2),
        "c": np.ma.array([1, 2], mask=[True, True]),
    }
    assert json_metrics(values) == ({"a": 0.5}, ["b", "c"])
