"""Our workloads by their names in params.yaml. Adding one is a file and an entry here."""

WORKLOADS = {
    "toy-linear": "trainparity.workloads.toy_linear:ToyLinear",
    "ddpm": "trainparity.workloads.ddpm:Ddpm",
    "resnet": "trainparity.workloads.resnet:Resnet",
    "classifier": "trainparity.workloads.classifier:Classifier",
    "superres": "trainparity.workloads.superres:SuperRes",
}
"""Imported by name when asked for: torchvision takes a second and a half, which other workloads need not pay."""
