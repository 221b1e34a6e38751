"""The part of the OpenAPI document that requests have and answers have not: `num_workers` as a range.

An answer has two numbers in its place, so that clients which expect a number are right.
"""

from typing import Any

_RANGE: dict[str, Any] = {
    "description": "the fewest and the most workers",
    "title": "Num Workers",
    "anyOf": [
        {"$ref": "#/components/schemas/WorkerRange"},
        {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2},
    ],
}


def add_elastic_trainer(schemas: dict[str, Any]) -> None:
    """To the schemas of requests: a specification's trainer may have either kind of scaling."""
    scaling, trainer = schemas["Scaling"], schemas["Trainer"]
    properties = {name: one for name, one in scaling["properties"].items() if name != "max_workers"}
    schemas["ElasticScaling"] = scaling | {
        "title": "ElasticScaling",
        "description": "An elastic worker group, in the names of Ray's `ScalingConfig`.",
        "properties": properties | {"num_workers": _RANGE},
        "required": ["num_workers"],
    }
    own = {"$ref": "#/components/schemas/ElasticScaling", "description": "the workers"}
    schemas["ElasticTrainer"] = trainer | {
        "title": "ElasticTrainer",
        "description": "How a trial is run on as many workers as there is room for.",
        "properties": trainer["properties"] | {"scaling": own},
        "required": [*trainer.get("required", []), "scaling"],
    }
    properties = schemas["ExperimentSpec"]["properties"]
    either = [{"$ref": f"#/components/schemas/{name}"} for name in ("Trainer", "ElasticTrainer")]
    properties["trainer"] = {"anyOf": either, "description": properties["trainer"]["description"]}
