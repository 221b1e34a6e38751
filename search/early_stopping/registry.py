"""The early stopping rules by name, as an experiment names one: `{rule: asha, min_step: 1, reduction_factor: 3}`."""

from typing import TYPE_CHECKING

from search.early_stopping.rule import Rule
from search.early_stopping.rule_parser import one_of
from search.early_stopping.rules.auto import Auto
from search.early_stopping.rules.patient import Patient
from search.early_stopping.rules.pbt import Pbt
from search.early_stopping.rules.wrappable_rules import PLUGINS, WRAPPABLE_RULES

# A new rule has a line in OWN_RULES, or here if `patient` cannot wrap it. Then no package may bring one of its name:
# it is also among the names that `plugins` gets in `wrappable_rules`.
RULES: dict[str, type[Rule]] = {
    **WRAPPABLE_RULES,
    "patient": Patient,
    "pbt": Pbt,
    "auto": Auto,
    **{name: kind for name, kind in PLUGINS.kinds.items() if name not in WRAPPABLE_RULES},
}

if TYPE_CHECKING:
    EarlyStoppingSpec = Rule
else:
    EarlyStoppingSpec = one_of(RULES, PLUGINS)
