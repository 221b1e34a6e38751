"""Arguments of the command line as documents of the API."""

from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from service.cli.arguments import BadArgument, fields_of, merge_patch, patched, path_text
from service.cli.shared_options import access_token


def test_settings_become_one_patch_with_values_in_json_or_text() -> None:
    settings = [
        "limits.max_trials=64",
        "limits.max_seconds=null",
        "tags.a=b = c",
        'objectives=[{"target": 1}]',
    ]
    assert merge_patch(settings) == {
        "limits": {"max_trials": 64, "max_seconds": None},
        "tags": {"a": "b = c"},
        "objectives": [{"target": 1}],
    }


def test_of_conflicting_settings_the_last_one_wins() -> None:
    assert merge_patch(["priority=1", "priority=2"]) == {"priority": 2}
    assert merge_patch(["limits=1", "limits.max_trials=2"]) == {"limits": {"max_trials": 2}}


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "[" * 100_000])
def test_a_number_that_json_lacks_is_sent_as_text(number: str) -> None:
    assert merge_patch([f"limits.max_seconds={number}"]) == {"limits": {"max_seconds": number}}


@pytest.mark.parametrize("setting", ["limits.max_trials", "=64", ""])
def test_a_setting_without_a_field_or_a_value_is_refused(setting: str) -> None:
    with pytest.raises(BadArgument, match="FIELD=VALUE"):
        merge_patch([setting])


@pytest.mark.parametrize(("token", "found"), [(" pl_a1\n", "pl_a1"), ("", None), (" ", None)])
def test_a_token_is_used_without_the_space_around_it(
    token: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_TOKEN", token)
    assert access_token() == found


@pytest.mark.parametrize("token", ["pl_a1\npl_a1", "pl_ü", "pl_ a1"])
def test_a_token_that_no_header_can_have_is_refused_without_showing_it(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_TOKEN", token)
    with pytest.raises(typer.BadParameter, match="PACELINE_TOKEN has a space, a line break or") as refused:
        access_token()
    assert "pl_" not in str(refused.value)


def test_names_with_dots_are_quoted() -> None:
    assert merge_patch(['space."model.lr".high=0.1', 'tags."a.b"=c']) == {
        "space": {"model.lr": {"high": 0.1}},
        "tags": {"a.b": "c"},
    }


@pytest.mark.parametrize("path", ["tags.", ".a", "a..b", 'tags."a', 'tags."a"b', 'tags.""'])
def test_a_path_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(BadArgument, match="must name a field"):
        merge_patch([f"{path}=1"])


@given(
    st.recursive(
        st.none() | st.integers() | st.lists(st.integers()),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner),
    ).filter(lambda one: isinstance(one, dict)),
    st.dictionaries(st.sampled_from("abc"), st.integers() | st.dictionaries(st.sampled_from("abc"), st.integers())),
)
def test_a_patched_document_has_the_values_of_the_patch_and_else_its_own(
    patch: dict[str, Any], document: dict[str, Any]
) -> None:
    result = patched(document, patch)
    for names in fields_of(patch):
        found, wanted = result, patch
        for name in names[:-1]:
            found, wanted = found[name], wanted[name]
        if wanted[names[-1]] is None:
            assert names[-1] not in found
        elif wanted[names[-1]] != {}:
            assert found[names[-1]] == wanted[names[-1]]
    assert all(result[name] == value for name, value in document.items() if name not in patch)
    assert patched(result, patch) == result


def test_a_path_is_written_as_it_is_read() -> None:
    names = next(fields_of(merge_patch(['space."model.lr".high=1'])))
    assert (names, path_text(names)) == (("space", "model.lr", "high"), 'space."model.lr".high')
