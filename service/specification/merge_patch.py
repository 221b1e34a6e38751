"""A spec with a merge patch (RFC 7396) applied, for the service and the command line."""

from typing import Any

RULE = "early_stopping"
NULL_HAS_A_MEANING = (("limits", "max_trials"),)
"""Fields whose null is not their default: it stays in the document, where RFC 7396 would remove it."""


def changed_document(document: Any, patch: dict[str, Any]) -> dict[str, Any]:
    """Merge the patch into the document of a spec. Another stopping rule starts without the options of the old one."""
    merged: dict[str, Any] = _merged(document, patch)
    if isinstance(patch.get(RULE), dict):
        earlier = document.get(RULE) if isinstance(document, dict) else None
        merged[RULE] = _merged(earlier, patch[RULE], renews_rules=True)
    for section, name in NULL_HAS_A_MEANING:
        given = patch.get(section)
        if isinstance(given, dict) and name in given:
            merged[section][name] = given[name]
    return merged


def _merged(document: Any, patch: Any, *, renews_rules: bool = False) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    if renews_rules and "rule" in patch and patch["rule"] != merged.get("rule"):
        merged = {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value, renews_rules=renews_rules)
    return merged
