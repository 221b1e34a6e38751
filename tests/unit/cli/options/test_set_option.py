"""The option `--set FIELD=VALUE`."""

import pytest

from service.cli.argument_values import BadArgument
from service.cli.options.set_option import fields_of, patch_from, path_text


def test_settings_become_one_patch_with_values_in_json_or_text() -> None:
    settings = [
        "limits.max_trials=64",
        "limits.max_seconds=null",
        "tags.a=b = c",
        'objectives=[{"target": 1}]',
    ]
    assert patch_from(settings) == {
        "limits": {"max_trials": 64, "max_seconds": None},
        "tags": {"a": "b = c"},
        "objectives": [{"target": 1}],
    }


def test_of_conflicting_settings_the_last_one_wins() -> None:
    assert patch_from(["priority=1", "priority=2"]) == {"priority": 2}
    assert patch_from(["limits=1", "limits.max_trials=2"]) == {"limits": {"max_trials": 2}}


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "[" * 100_000])
def test_a_number_that_json_lacks_is_sent_as_text(number: str) -> None:
    assert patch_from([f"limits.max_seconds={number}"]) == {"limits": {"max_seconds": number}}


@pytest.mark.parametrize("setting", ["limits.max_trials", "=64", ""])
def test_a_setting_without_a_field_or_a_value_is_refused(setting: str) -> None:
    with pytest.raises(BadArgument, match="FIELD=VALUE"):
        patch_from([setting])


def test_names_with_dots_are_quoted() -> None:
    assert patch_from(['space."model.lr".high=0.1', 'tags."a.b"=c']) == {
        "space": {"model.lr": {"high": 0.1}},
        "tags": {"a.b": "c"},
    }


@pytest.mark.parametrize("path", ["tags.", ".a", "a..b", 'tags."a', 'tags."a"b', 'tags.""'])
def test_a_path_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(BadArgument, match="must name a field"):
        patch_from([f"{path}=1"])


def test_a_path_is_written_as_it_is_read() -> None:
    names = next(fields_of(patch_from(['space."model.lr".high=1'])))
    assert (names, path_text(names)) == (("space", "model.lr", "high"), 'space."model.lr".high')
