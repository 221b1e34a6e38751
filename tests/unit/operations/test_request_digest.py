"""The digest by which a repeated submission is recognized."""

from service.operations.experiments.creation import request_digest
from service.specification.models import ExperimentSpec
from tests.conftest import a_spec


class LaterSpec(ExperimentSpec):
    """A specification of a later version, which has one more field."""

    later: int = 3


def test_it_is_the_same_in_a_version_with_more_fields() -> None:
    spec = a_spec()
    digest = request_digest(ExperimentSpec.model_validate(spec))
    assert request_digest(LaterSpec.model_validate(spec)) == digest
    assert request_digest(LaterSpec.model_validate(spec | {"later": 3})) != digest


def test_it_tells_rules_with_the_same_options_apart() -> None:
    rules = [{"rule": rule, "max_step": 9} for rule in ("asha", "hyperband")]
    digests = {request_digest(ExperimentSpec.model_validate(a_spec(name="one", early_stopping=one))) for one in rules}
    assert len(digests) == 2
