"""How an experiment names its rule: `{rule: asha, min_step: 1, reduction_factor: 3}`."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from search.early_stopping.pause_contract import Pausing
from search.early_stopping.rule_base import RuleOptions
from search.early_stopping.rule_parser import one_of
from search.early_stopping.rules.patient import Patient
from search.early_stopping.rules.pbt import Pbt
from search.early_stopping.rules.simple import SIMPLE, Simple

# A new rule is a model with the methods of `Rule`, in `simple` or here.
RULES: dict[str, type[RuleOptions]] = {"patient": Patient, "pbt": Pbt, **SIMPLE}

_Tagged = Annotated[Simple | Patient | Pbt, Field(discriminator="rule")]
_ADAPTER: TypeAdapter[Simple | Patient | Pbt] = TypeAdapter(_Tagged)

# Validated as a field, every mistake comes at once; `{}` is `{rule: none}`.
EarlyStoppingSpec = Annotated[_Tagged, one_of(RULES, _ADAPTER)]


def rule_for(spec: EarlyStoppingSpec) -> Pausing:
    return spec
