"""The settings of an agent: what their values mean, and how a wrong one is refused."""

from pathlib import Path

import pytest

from trainer.agent.settings import BadSetting, preloaded_modules, prestarted_workers, state_directory


@pytest.mark.parametrize(
    ("value", "modules"),
    [("", ()), ("transformers", ("transformers",)), (" lightning.pytorch , jax,", ("lightning.pytorch", "jax"))],
)
def test_preloaded_modules_are_listed_with_commas(value: str, modules: tuple[str, ...]) -> None:
    assert preloaded_modules({"PACELINE_PRELOADED_MODULES": value}) == modules


@pytest.mark.parametrize("value", ["transformers lightning", "jax,os; print(1)", "scikit-learn", "a..b"])
def test_what_is_no_module_is_refused(value: str) -> None:
    with pytest.raises(BadSetting, match=r"has to list Python modules .*, such as transformers,lightning\.pytorch"):
        preloaded_modules({"PACELINE_PRELOADED_MODULES": value})


def test_a_number_of_prestarted_workers_is_whole_or_left_to_the_agent() -> None:
    assert prestarted_workers({"PACELINE_PRESTARTED_WORKERS": "0"}) == 0
    assert 4 <= prestarted_workers({}) == prestarted_workers({"PACELINE_PRESTARTED_WORKERS": "auto"}) <= 10
    with pytest.raises(BadSetting, match=r"PACELINE_PRESTARTED_WORKERS is '-1'; .* whole number, such as 4, or auto"):
        prestarted_workers({"PACELINE_PRESTARTED_WORKERS": "-1"})


def test_the_directory_of_the_lock_may_be_below_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert state_directory({"PACELINE_DATA_DIR": "~/tuning"}) == Path("/home/me/tuning")
    assert state_directory({"PACELINE_DATA_DIR": "~nobody-else/x"}) == Path("~nobody-else/x")
