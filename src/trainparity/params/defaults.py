"""What a params file may leave out: references, precisions and pairs that follow from its configurations."""

from typing import Any, get_args

from trainparity.params.execution import Precision, is_name

REFERENCE = "reference"
"""The name by which `pairs` calls the reference of a configuration."""

COUNTERPART = "counterpart"
"""The name by which `pairs` calls the reference's training in the other runtime: in a container, or on the host."""

_PRECISIONS = get_args(Precision)


def complete(content: Any) -> Any:
    """Add what follows from the rest; sections that are no mappings are left to the validation.

    - A reference is in the precision that it is named as, else in fp32.
    - A configuration without a `reference` has the one named as its precision, which is added where it is missing; one
      with a `reference` has its precision.
    - Each configuration is compared with its reference, in a pair of its own name.
    """
    if not isinstance(content, dict):
        return content
    references, configs, pairs = (content.get(key, {}) for key in ("references", "configs", "pairs"))
    if not all(isinstance(section, dict) for section in (references, configs, pairs)):
        return content
    references = {name: _with_precision(name, reference) for name, reference in references.items()}
    configs = {name: _with_reference(configuration, references) for name, configuration in configs.items()}
    for configuration in configs.values():
        named = configuration.get("reference") if isinstance(configuration, dict) else None
        if isinstance(named, str) and named in _PRECISIONS:
            references.setdefault(named, {"precision": named})
    own = {name: {"left": REFERENCE, "right": name} for name in configs if isinstance(name, str) and is_name(name)}
    return content | {"references": references, "configs": configs, "pairs": own | pairs}


def _with_precision(name: object, reference: Any) -> Any:
    if not isinstance(reference, dict):
        return reference
    return {"precision": name if name in _PRECISIONS else "fp32"} | reference


def _with_reference(configuration: Any, references: dict[Any, Any]) -> Any:
    if not isinstance(configuration, dict):
        return configuration
    named = configuration.get("reference")
    if named is None:
        precision = configuration.get("precision", "fp32")
        return configuration | {"precision": precision, "reference": precision}
    reference = references.get(named) if isinstance(named, str) else None
    inherited = reference.get("precision") if isinstance(reference, dict) else named if named in _PRECISIONS else "fp32"
    return {"precision": inherited} | configuration
