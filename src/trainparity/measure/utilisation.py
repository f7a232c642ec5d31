"""What NVML sees of a GPU while a run is timed."""

import threading
from types import TracebackType
from typing import Self

import torch

from trainparity import extras
from trainparity.records.timing import Utilisation

_INTERVAL_S = 0.1


class UtilisationSampler:
    """Samples a GPU in a thread from `start` until the context ends; does nothing without NVML."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._percent: list[float] = []
        self._temperature: list[float] = []
        self._energy_j: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def start(self) -> None:
        """Begin sampling."""
        if self._device.type == "cuda" and extras.is_there("pynvml"):
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()

    def result(self) -> Utilisation | None:
        """Return the mean utilisation, highest temperature and energy; None without NVML."""
        if not self._percent:
            return None
        mean = sum(self._percent) / len(self._percent)
        return Utilisation(gpu_percent=mean, temperature_c=max(self._temperature), energy_j=self._energy_j)

    def _sample(self) -> None:
        import pynvml

        try:
            pynvml.nvmlInit()
            # By UUID: NVML's indices know nothing of CUDA_VISIBLE_DEVICES.
            uuid = f"GPU-{torch.cuda.get_device_properties(self._device).uuid}"
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            before = _energy(handle)
            stopped = False
            while not stopped:  # a last sample after the end: the timed steps may take less than one interval
                stopped = self._stop.wait(_INTERVAL_S)
                percent = float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                temperature = float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
                self._percent.append(percent)
                self._temperature.append(temperature)
            after = _energy(handle)
            self._energy_j = None if before is None or after is None else (after - before) / 1000
        except pynvml.NVMLError:
            return  # no driver, or a virtual GPU that answers nothing


def _energy(handle: object) -> float | None:
    """Return millijoules since the driver was loaded, where the device counts them (Volta and later)."""
    import pynvml

    try:
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
    except pynvml.NVMLError:
        return None
