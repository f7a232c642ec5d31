"""A study's runs as the claims read them, and a clear reason where there is nothing to read."""

from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch

from trainparity import params as parameters
from trainparity import workloads
from trainparity.claims.schema import Needs
from trainparity.claims.weights import final_weights
from trainparity.data.manifest import Manifest
from trainparity.data.store import load as load_data
from trainparity.params import REFERENCE, Params, reference_name
from trainparity.parity.recording.trace import Trace
from trainparity.records import layout
from trainparity.records.curves import CurveReport, CurveResult
from trainparity.records.evaluation import Evaluation
from trainparity.records.loading import LoaderMeasurement, LoadingReport
from trainparity.records.run import Status
from trainparity.records.timing import Timing
from trainparity.records.verdict import ParityReport, Verdict


class NotMeasurable(Exception):
    """A claim cannot be measured here; the message says why."""


class Study:
    """The runs and reports under one folder."""

    def __init__(self, params: Params, root: Path) -> None:
        """Take a study's settings and the folder that holds its `runs`, `reports` and `data`."""
        self.params, self.root, self.runs = params, root, root / "runs"
        self.trace = cache(self._trace)  # large, and several claims are about one

    def meet(self, needs: Needs, runs: list[str]) -> None:
        """Raise `NotMeasurable` unless the runs trained on what a claim needs."""
        for run in runs:
            status = self.status(run)
            if needs.device and status.device not in (needs.device, None):
                raise NotMeasurable(f"{run} ran on {status.device}; the claim is about {needs.device}")
            if status.status == "skipped":
                raise NotMeasurable(status.ending)

    def status(self, run: str) -> Status:
        """Return what became of a run."""
        return Status.read(layout.status(self.runs, run))

    def trained(self, run: str) -> Status:
        """Return the status of a run that trained."""
        status = self.status(run)
        if status.status != "trained":
            raise NotMeasurable(status.ending)
        return status

    def timing(self, run: str) -> Timing:
        """Return a trained run's time and memory, if they mean anything."""
        status = self.trained(run)
        if status.emulated:
            raise NotMeasurable(f"{run} is emulated here: {status.emulated}")
        timing = self.measured(run)
        if not timing.steady:
            raise NotMeasurable(f"something else used the machine: the steps of {run} scatter too much")
        return timing

    def measured(self, run: str) -> Timing:
        """Return what was measured of a trained run, whether its times mean anything or not."""
        self.trained(run)
        return Timing.read(layout.timing(self.runs, run))

    def weights(self, run: str) -> np.ndarray:
        """Return a run's final weights, joined in the order of their names: float64 [n]."""
        self.trained(run)
        return final_weights(layout.weights(self.runs, run))

    def _trace(self, run: str) -> Trace:
        self.trained(run)
        return Trace.load(layout.state(self.runs, run))

    def losses(self, run: str) -> np.ndarray:
        """Return a run's loss after each step: float64 [T]."""
        losses: np.ndarray = self.trace(run).arrays["loss"].double().numpy()
        return losses

    def evaluation(self, run: str) -> Evaluation:
        """Return what a run's model scored on held-out samples."""
        self.trained(run)
        path = layout.evaluation(self.runs, run)
        if not path.exists():
            raise NotMeasurable(f"{run} was not evaluated: the workload predicts nothing, or train.holdout is 0")
        return Evaluation.read(path)

    def pair(self, name: str) -> Verdict:
        """Return the verdict on a pair of params.yaml."""
        return self._parity.pairs[name]

    def verdict(self, run: str) -> Verdict | None:
        """Return the verdict on a run against its reference; None if no pair compares them."""
        return self._parity.against(run, REFERENCE, reference_name(self.params.reference_of(run)))

    @cached_property
    def _parity(self) -> ParityReport:
        return ParityReport.read(self.root / "reports" / "parity.json")

    def curves(self, name: str) -> CurveResult:
        """Return the verdict on two recipes' learning curves."""
        return CurveReport.read(self.root / "reports" / "curves.json").results[name]

    def loading(self, workers: int, prefetch_factor: int | None = None) -> LoaderMeasurement:
        """Return the fastest measured way to load with so many workers while training."""
        found = [
            measured
            for measured in LoadingReport.read(layout.loading(self.runs)).measurements
            if measured.mode == "training"
            and measured.workers == workers
            and prefetch_factor in (None, measured.prefetch_factor)
        ]
        if not found:
            raise NotMeasurable(f"loading with {workers} workers was not measured at this scale")
        if not (ok := [measured for measured in found if measured.figures]):
            raise NotMeasurable(found[0].sentence)
        return min(ok, key=lambda measured: measured.figures.epoch_s if measured.figures else 0.0)

    @property
    def manifest(self) -> Manifest:
        """What was trained on."""
        return Manifest.of(self.root / "data" / "prepared")

    def steps_per_epoch(self, run: str) -> int:
        """Return the optimizer steps that visit every sample once."""
        return self.params.train_of(self._reference(run)).steps_per_epoch(self.manifest.samples)

    def num_parameters(self, run: str, scale: str | None) -> int:
        """Count the parameters of a run's model, at another scale if one is given."""
        params = parameters.load(self.root / "params.yaml", scale)
        settings = params.workload_of(self._reference(run))
        sample = load_data(self.root / "data" / "prepared").batch(torch.zeros(1, dtype=torch.int64))
        if edge := getattr(params.dataset, "image_size", None):  # of that scale's images, which are not prepared here
            sample |= {"images": sample["images"].new_zeros(*sample["images"].shape[:2], edge, edge)}
        with torch.device("meta"):
            model = workloads.load(settings.name, settings.options).build_model(sample)
        return sum(parameter.numel() for parameter in model.parameters())

    def _reference(self, run: str) -> str:
        """Return the entry of `references` that a run is, or is compared with."""
        references = {reference_name(reference): reference for reference in self.params.references}
        return references.get(run) or self.params.reference_of(run)
