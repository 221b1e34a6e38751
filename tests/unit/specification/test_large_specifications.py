"""The service reads a specification in its own process: each is read in a time about linear in its size.

The sizes are such that a time that grows with their square is longer than the limit of the tests.
"""

from typing import Any

import pytest

from service.errors import Invalid
from service.specification.cross_field_checks.runtime_env_checks import mistakes_in_requirements
from service.specification.models import ExperimentSpec
from service.specification.parser import parse_spec
from tests.conftest import a_spec
from trainer.wire import Trainer

pytestmark = pytest.mark.timeout(60)

CHOICES = [f"v{number}" for number in range(200_000)]
LIMITS = {"max_trials": len(CHOICES)}
OTHERS = [f"w{number}" for number in range(200_000)]


def space(conditions: list[str]) -> dict[str, Any]:
    choice = {"type": "categorical", "choices": CHOICES}
    return {"c": choice, "x": {"type": "int", "low": 0, "high": 3, "when": {"c": conditions}}}


def spec(**fields: Any) -> ExperimentSpec:
    return parse_spec(a_spec(**fields))


def test_a_condition_on_many_choices() -> None:
    assert spec(space=space(CHOICES[::-1])).space.root["x"].when["c"] == tuple(CHOICES[::-1])


def test_wrong_choices_in_a_condition_are_named_in_part() -> None:
    with pytest.raises(Invalid) as refused:
        spec(space=space(OTHERS))
    assert len(refused.value.mistakes) == 10
    assert refused.value.mistakes[0].message.endswith('"v28", "v29", …, not "w0"')


def test_many_choices_to_begin_with() -> None:
    assert spec(space={"c": space([])["c"]}, enqueue=[{"c": one} for one in CHOICES[::4]], limits=LIMITS)


def test_a_text_that_begins_like_a_token_again_and_again() -> None:
    assert not spec(config={"note": "-eyJ" * 1_000_000}).warnings
    token = {"note": "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"}
    assert "looks like a secret" in spec(config=token).warnings[0].message


@pytest.mark.parametrize("requirements", ["a=1\n" * 500, "b;" + " or ".join(["os_name=='a'"] * 120)])
def test_a_package_with_many_requirements(requirements: str) -> None:
    with pytest.raises(Invalid) as refused:
        spec(trainer={"entrypoint": "a:b", "runtime_env": {"pip": ["a=1", *[requirements] * 999]}})
    assert "write a==1" in refused.value.mistakes[0].message


def test_a_requirement_with_many_versions() -> None:
    fields = {"entrypoint": "a:b", "runtime_env": {"pip": "from_package"}, "package": f"sha256:{'0' * 64}"}
    content = b"b==1" + b",==1" * 4_000_000 + b"\na=1"
    (mistake,) = mistakes_in_requirements(Trainer.model_validate(fields), ["requirements.txt"], content)
    assert "write a==1" in mistake.message
