"""Our workloads by their names in params.yaml. Adding one is two files and an entry in both tables."""

WORKLOADS = {
    "toy-linear": "trainparity.workloads.toy_linear:ToyLinear",
    "ddpm": "trainparity.workloads.ddpm:Ddpm",
    "resnet": "trainparity.workloads.resnet:Resnet",
    "classifier": "trainparity.workloads.classifier:Classifier",
    "superres": "trainparity.workloads.superres:SuperRes",
}
"""Imported by name when asked for: torchvision takes a second and a half, which other workloads need not pay."""

OPTIONS = {
    "toy-linear": "trainparity.workloads.options.toy_linear:ToyLinearOptions",
    "ddpm": "trainparity.workloads.options.ddpm:DdpmOptions",
    "resnet": "trainparity.workloads.options.resnet:ResnetOptions",
    "classifier": "trainparity.workloads.options.classifier:ClassifierOptions",
    "superres": "trainparity.workloads.options.superres:SuperResOptions",
}
"""The `Options` of each, by which params.yaml is checked without importing torch."""
