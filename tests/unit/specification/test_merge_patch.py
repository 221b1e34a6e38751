"""A spec with a merge patch applied."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.cli.options.set_option import fields_of
from service.specification.merge_patch import changed_document


@given(
    st.recursive(
        st.none() | st.integers() | st.lists(st.integers()),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner),
    ).filter(lambda one: isinstance(one, dict)),
    st.dictionaries(st.sampled_from("abc"), st.integers() | st.dictionaries(st.sampled_from("abc"), st.integers())),
)
def test_a_changed_document_has_the_values_of_the_patch_and_else_its_own(
    patch: dict[str, Any], document: dict[str, Any]
) -> None:
    result = changed_document(document, patch)
    for names in fields_of(patch):
        found, wanted = result, patch
        for name in names[:-1]:
            found, wanted = found[name], wanted[name]
        if wanted[names[-1]] is None:
            assert names[-1] not in found
        elif wanted[names[-1]] != {}:
            assert found[names[-1]] == wanted[names[-1]]
    assert all(result[name] == value for name, value in document.items() if name not in patch)
    assert changed_document(result, patch) == result


def test_another_rule_starts_without_the_options_of_the_old_one() -> None:
    spec = {"early_stopping": {"rule": "asha", "min_step": 1}, "priority": 1}
    median = {"early_stopping": {"rule": "median", "n_startup_trials": 4}}
    assert changed_document(spec, median) == {**median, "priority": 1}
    same = {"early_stopping": {"rule": "asha", "reduction_factor": 4}}
    assert changed_document(spec, same)["early_stopping"] == {"rule": "asha", "min_step": 1, "reduction_factor": 4}
