"""The types of the fields in the bodies of `trainer.wire`."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from search.field_descriptions import describe_fields
from trainer.node_labels import is_condition, is_label_key
from trainer.storable_values import is_storable_text, storable_text

MAX_WORKERS = 100_000

MAX_COUNT = 2**53
"""The largest step or sequence: up to here, every JSON reader represents integers exactly."""


def _text(text: str) -> str:
    if not is_storable_text(text):
        raise ValueError("must not have NUL characters or lone surrogates")
    return text


def _amount(value: float) -> float:
    if 0 < value < SMALLEST_AMOUNT:
        raise ValueError(f"must be 0 or at least {SMALLEST_AMOUNT:g}, the smallest amount that Ray can reserve")
    return value


def _a_number(value: Any) -> Any:
    """Pydantic also takes true for 1, and text for numbers."""
    if isinstance(value, bool | str):
        what = "text" if isinstance(value, str) else "true or false"
        raise ValueError(f"must be a number, not {what}")  # noqa: TRY004 - pydantic wants a ValueError
    return value


def _label_key(text: str) -> str:
    if not is_label_key(text):
        raise ValueError("must be the name of a label, as in `zone` or `example.com/zone`")
    return text


def _condition(text: str) -> str:
    if not is_condition(text):
        raise ValueError("must be a label's value, or a condition for it: `a`, `!a`, `in(a, b)` or `!in(a, b)`")
    return text.replace(", ", ",")  # Ray takes the space, and then looks for a value that begins with it


def in_words(message: str) -> WrapValidator:
    """Gives an annotated type one message instead of pydantic's, which show a pattern, or each member of a union."""

    def validate(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(given)
        except ValidationError:
            raise ValueError(message) from None

    return WrapValidator(validate)


class SelectorMember(StrEnum):
    """The members of `LabelSelectors`. In the path of a mistake, pydantic puts them after the field."""

    FOR_ALL = "one for all workers"
    FOR_EACH = "one for each worker"


SMALLEST_AMOUNT = 1e-4
JsonNumber = BeforeValidator(_a_number)
Bool = Annotated[bool, Strict()]
Key = Annotated[str, AfterValidator(_text)]
Text = Annotated[str, AfterValidator(_text), Field(json_schema_extra={"pattern": r"^[^\u0000]*$"})]
ReadableText = Annotated[str, AfterValidator(storable_text)]
"""Text for people. It is repaired rather than refused, because it says why something failed."""
LabelSelector = dict[Annotated[Key, AfterValidator(_label_key)], Annotated[Text, AfterValidator(_condition)]]
LabelSelectors = Annotated[
    Annotated[LabelSelector, Tag(SelectorMember.FOR_ALL)]
    | Annotated[list[LabelSelector], Field(min_length=1, max_length=1000), Tag(SelectorMember.FOR_EACH)],
    Discriminator(lambda given: SelectorMember.FOR_EACH if isinstance(given, list) else SelectorMember.FOR_ALL),
]
EnvironmentName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200),
    in_words("must be a variable's name: at most 200 letters, digits and underscores, not beginning with a digit"),
]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT), JsonNumber]
DeletionId = Annotated[int, Field(ge=0, lt=MAX_COUNT), JsonNumber]
Ordinal = Annotated[int, Field(ge=1, le=MAX_COUNT), JsonNumber]
Rank = Annotated[int, Field(ge=0, le=1_000_000), JsonNumber]
WorldSize = Annotated[int, Field(ge=1, le=MAX_WORKERS), JsonNumber]
Seconds = Annotated[float, Field(ge=0, le=60, allow_inf_nan=False), JsonNumber]
SystemMetric = Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=100)]
SystemValue = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False), JsonNumber]
Capacity = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False), JsonNumber]
Amount = Annotated[Capacity, AfterValidator(_amount)]


class Message(BaseModel):
    """A body on the wire. An unknown field is an error that the sender gets to see."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=describe_fields)
