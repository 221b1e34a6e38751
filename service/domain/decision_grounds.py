"""What an early-stopping decision is based on, as JSON."""

from pydantic import BaseModel, ConfigDict

from search.field_descriptions import describe_fields


class GroundsModel(BaseModel):
    """What a decision is based on. The fields are those of `search.early_stopping.decision.Grounds`."""

    model_config = ConfigDict(json_schema_extra=describe_fields)

    milestone: int
    """the step at which trials are compared"""
    value: float
    """the trial's value"""
    cutoff: float | None
    """what the value was compared with"""
    compared_count: int
    """the number of trials that the cutoff was taken from"""
    compared_with: list[int]
    """the numbers of up to ten of these trials, those nearest to the cutoff, best first"""
    reason: str
    """the decision in words"""
