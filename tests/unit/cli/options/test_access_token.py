"""The token that the command line sends."""

import pytest
import typer

from service.cli.options.shared_options import access_token


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
