"""Our workloads by their names in params.yaml. Adding one is two files of one name and an entry here."""

_CLASSES = {
    "toy-linear": "toy_linear:ToyLinear",
    "ddpm": "ddpm:Ddpm",
    "resnet": "resnet:Resnet",
    "classifier": "classifier:Classifier",
    "superres": "superres:SuperRes",
}

WORKLOADS = {name: f"trainparity.workloads.{place}" for name, place in _CLASSES.items()}
"""Imported by name when asked for: torchvision takes a second and a half, which other workloads need not pay."""

OPTIONS = {name: f"trainparity.workloads.options.{place}Options" for name, place in _CLASSES.items()}
"""The `Options` of each, by which params.yaml is checked without importing torch."""
