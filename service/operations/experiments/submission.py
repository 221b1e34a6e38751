"""What a user submits: a spec, perhaps with the code of its training function."""

from dataclasses import dataclass
from typing import Any

from search.mistakes import Mistake
from service.errors import Invalid
from service.operations.packages.package_store import CheckedPackage, store_package
from service.runtime.context import Context
from service.specification.models import ExperimentSpec
from service.specification.parser import parse_spec


@dataclass(frozen=True)
class Submission:
    """A spec, and the code that was sent with it."""

    document: Any
    package: CheckedPackage | None = None


def parse_submission(context: Context, submission: Submission) -> ExperimentSpec:
    """Return the spec, which names the package of the code that was sent with it. Raises Invalid."""
    document = submission.document
    trainer = document.setdefault("trainer", {}) if isinstance(document, dict) else None
    if submission.package is not None and isinstance(trainer, dict):  # else `parse_spec` says what is wrong
        if "package" in trainer:
            message = "must be absent when code is sent with the spec; leave out one of the two"
            raise Invalid([Mistake(("trainer", "package"), message)])
        trainer["package"] = store_package(context, submission.package).id
    return parse_spec(document)
