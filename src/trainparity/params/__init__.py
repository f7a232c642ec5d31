"""params.yaml as typed, frozen objects."""

from trainparity.params.dataset import Dataset, Digits, Downloaded, Fake, ImageFolder, Own, Photographs
from trainparity.params.defaults import COUNTERPART, REFERENCE
from trainparity.params.execution import Configuration, DeviceKind, Loader, Name, Precision, Reference, StartMethod
from trainparity.params.files import load, parse
from trainparity.params.root import Pair, Params, reference_name
from trainparity.params.study import Curves, Loading, Picture, Recipes
from trainparity.params.training import LARGEST_MARGIN, Optimizer, Parity, Timing, Train, Workload

__all__ = [
    "COUNTERPART",
    "LARGEST_MARGIN",
    "REFERENCE",
    "Configuration",
    "Curves",
    "Dataset",
    "DeviceKind",
    "Digits",
    "Downloaded",
    "Fake",
    "ImageFolder",
    "Loader",
    "Loading",
    "Name",
    "Optimizer",
    "Own",
    "Pair",
    "Params",
    "Parity",
    "Photographs",
    "Picture",
    "Precision",
    "Recipes",
    "Reference",
    "StartMethod",
    "Timing",
    "Train",
    "Workload",
    "load",
    "parse",
    "reference_name",
]
