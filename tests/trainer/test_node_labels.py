"""Label selectors: what they choose, which ones are right, and how many workers have places. The rules are Ray's."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.node_labels import count_placed, is_condition, is_label_key, selects

texts = st.text("ab0!.-_/(), in", max_size=12) | st.sampled_from(["in(a, b)", "!in(a,b)", "a" * 64, "x." * 200 + "/a"])


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("a", "a", True),
        ("a", None, False),
        ("!a", "b", True),
        ("!a", None, True),
        ("in(a, b)", "b", True),
        ("in(a,b)", "c", False),
        ("!in(a, b)", "c", True),
        ("!in(a, b)", "a", False),
        ("!in(a, b)", None, True),
    ],
)
def test_a_condition_is_that_of_ray(condition: str, value: str | None, holds: bool) -> None:
    """As seen with Ray 2.60 and two nodes."""
    assert selects({"zone": condition}, {} if value is None else {"zone": value}) is holds


@pytest.mark.ray
@pytest.mark.slow  # importing Ray takes a second
@given(texts, texts)
def test_ray_takes_what_is_taken_here(key: str, condition: str) -> None:
    from ray._private.label_utils import validate_label_selector  # noqa: PLC0415 - heavy

    if is_label_key(key) and is_condition(condition):
        assert validate_label_selector({key: condition}) is None


@pytest.mark.parametrize(("key", "is_right"), [("zone", True), ("a.b/zone", True), ("zo ne", False), ("/zone", False)])
def test_the_name_of_a_label(key: str, is_right: bool) -> None:
    assert is_label_key(key) is is_right


nodes = st.lists(st.tuples(st.integers(0, 2), st.dictionaries(st.just("z"), st.sampled_from("abc"))), max_size=4)
selectors = st.lists(st.dictionaries(st.just("z"), st.sampled_from(["a", "!a", "in(a, b)", "!in(b, c)"])), max_size=4)


@given(selectors, nodes)
def test_as_many_workers_are_placed_as_any_assignment_places(
    wanted: list[dict[str, str]], has: list[tuple[int, dict[str, str]]]
) -> None:
    places = [labels for count, labels in has for _ in range(count)]

    def fit(count: int) -> bool:
        some = wanted[:count]
        return any(all(map(selects, some, chosen)) for chosen in permutations(places, count))

    assert count_placed(wanted, has) == max(count for count in range(len(wanted) + 1) if fit(count))
