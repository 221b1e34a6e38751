"""What the user believes of one parameter: where its good values are."""

from typing import Literal

from pydantic import ConfigDict

from search.json_types import JsonModel
from search.space.scalars import Scalar

Confidence = Literal["low", "medium", "high"]


class Prior(JsonModel):
    """The value that the user would try first, and how sure of it the user is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: Scalar
    """where good values are expected"""
    confidence: Confidence = "medium"
    """how close to it they are expected"""
