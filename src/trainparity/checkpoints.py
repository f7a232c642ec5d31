"""Training state on disk, unsharded: every strategy can load what any other has saved."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from trainparity.records.base import RecordError
from trainparity.records.files import replacing, write_text
from trainparity.records.tensors import save as save_tensors
from trainparity.whole_tensors import by_host, whole

_OPTIONS = StateDictOptions(full_state_dict=True, cpu_offload=True)
_SHARDED = StateDictOptions()


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers whole on the CPU, on rank 0. Every rank must call it.

    Raises:
        RecordError: a parameter is on the meta device.
    """
    if empty := [name for name, parameter in model.named_parameters() if parameter.is_meta]:
        raise RecordError(
            f"the state of a training cannot be kept: {empty[0]} is on the meta device and has no numbers. Give it "
            "some before the training begins, or record without windows (`every`)"
        )
    state: dict[str, Any] = get_model_state_dict(model, options=_gathered(model))
    return _on_rank_0(state)


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    extra: dict[str, Tensor],
    scalars: dict[str, Any],
    *,
    main: bool,
) -> None:
    """Write the state of model and optimizer, with other tensors and JSON values, whole or not at all.

    Every rank must call it; rank 0 (`main`) writes.

    Raises:
        RecordError: a parameter has no numbers, or the optimizer keeps something of it that is none and no tensor.
    """
    check(optimizer)
    tensors = {f"model.{name}": tensor for name, tensor in model_state(model).items()}
    groups: list[dict[str, Any]] = []
    kept: list[tuple[str, str]] = []
    numbers: list[tuple[str, str, float | None]] = []
    if optimizer.state:  # before the first step there is no state, and get_optimizer_state_dict would create some
        state: dict[str, Any] = get_optimizer_state_dict(model, optimizer, options=_gathered(model))
        groups = [_as_json(group) for group in state.get("param_groups", [])]
        for name, values in state.get("state", {}).items():
            for key, value in _on_rank_0(values).items():
                tensors[f"optimizer.{len(kept)}"] = value
                kept.append((name, key))
            numbers += [(name, key, value) for key, value in values.items() if not isinstance(value, Tensor)]
    if not main:
        return
    tensors |= {f"extra.{name}": tensor for name, tensor in extra.items()}
    with replacing(folder) as unfinished:
        unfinished.mkdir()
        save_tensors(tensors, unfinished / "state.safetensors")
        values = {"param_groups": groups, "kept": kept, "numbers": numbers, "scalars": scalars}
        values["checksum"] = _checksum(values, unfinished / "state.safetensors")
        write_text(unfinished / "state.json", json.dumps(values))


def check(optimizer: torch.optim.Optimizer) -> None:
    """Refuse, on every rank, an optimizer with something that can't be written.

    Raises:
        RecordError: names it.
    """
    check_options(optimizer)
    _check_state(optimizer)


def check_options(optimizer: torch.optim.Optimizer) -> None:
    """Refuse, on every rank, an optimizer that has an option which can't be written.

    Raises:
        RecordError: names it.
    """
    for group in optimizer.param_groups:
        for key, value in group.items():
            if not _is_plain(value):
                _refuse(optimizer, f"has a {type(value).__name__} as {key!r}")


def _check_state(optimizer: torch.optim.Optimizer) -> None:
    """Refuse, on every rank, a state of which a part can't be written."""
    for parameter, state in optimizer.state.items():
        if not isinstance(parameter, Tensor):
            _refuse(optimizer, f"keeps {parameter!r} beside what it keeps of each parameter")
        for key, value in state.items():
            if not isinstance(value, _NUMBERS):
                _refuse(optimizer, f"keeps a {type(value).__name__} as {key!r}")


def _refuse(optimizer: torch.optim.Optimizer, what: str) -> NoReturn:
    raise RecordError(
        f"the state of a training cannot be kept: its {type(optimizer).__name__} {what}, not a tensor or a number of "
        "Python. Record without windows (`every`)"
    )


_NUMBERS = (Tensor, bool, int, float, type(None))


def _is_plain(option: object) -> bool:
    """Tell whether torch gathers an option from ranks: it refuses a function or a set."""
    if isinstance(option, Mapping):
        return all(map(_is_plain, option.values()))
    return all(map(_is_plain, option)) if isinstance(option, list | tuple) else isinstance(option, (*_NUMBERS, str))


def _as_json(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's parameters and those of its options that are JSON values, not tensors."""
    found = {}
    for key, value in group.items():
        with suppress(TypeError):
            json.dumps(value)
            found[key] = value
    return found


def _checksum(values: Mapping[str, Any], tensors: Path) -> str:
    """Return the SHA-256 of a state: of its JSON values and its file of tensors."""
    with tensors.open("rb") as file:
        found = hashlib.file_digest(file, "sha256")
    found.update(json.dumps({key: value for key, value in values.items() if key != "checksum"}).encode())
    return found.hexdigest()


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the JSON values and the tensors of a state.

    Raises:
        RecordError: one of its files is missing or damaged.
    """
    tensors = folder / "state.safetensors"
    try:
        values: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        if not isinstance(values, dict) or _checksum(values, tensors) != values.get("checksum"):
            raise RecordError(f"{folder}: damaged: its files are not as they were written, or of an earlier version")
        return values, load_file(tensors)
    except OSError as error:
        raise RecordError(f"{folder}: cannot be read: {error}") from None
    except (ValueError, SafetensorError) as error:
        raise RecordError(f"{folder}: damaged: {error}") from None


def load(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, *, keep_settings: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load what `save` wrote into model and optimizer, on every rank; return the extra tensors and scalars.

    With `keep_settings` the optimizer's state is loaded, its learning rate and other options are not; nor is in any
    case an option that is no JSON value.

    Raises:
        RecordError: a file is missing or damaged, or it is the state of another model or optimizer.
    """
    values, written = _read(folder)
    _check_kept(folder, values, optimizer)
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "extra": {}}
    for name, tensor in written.items():
        part, _, key = name.partition(".")
        parts[part][key] = tensor
    held: dict[str, Any] = get_model_state_dict(model, options=_SHARDED)
    tensors: dict[str, Any] = {name: _as_held(tensor, held.get(name)) for name, tensor in parts["model"].items()}
    try:
        set_model_state_dict(model, tensors, options=_SHARDED)
    except RuntimeError as error:
        raise RecordError(f"{folder}: the state of another model: {error}") from None
    if values["param_groups"]:
        state: dict[str, dict[str, Any]] = {}
        for place, (parameter, key) in enumerate(values["kept"]):
            state.setdefault(parameter, {})[key] = _as_held(parts["optimizer"][str(place)], held.get(parameter))
        for parameter, key, number in values["numbers"]:
            state.setdefault(parameter, {})[key] = number
        optimizer_state = {"state": state, "param_groups": values["param_groups"]}
        own = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        set_optimizer_state_dict(model, optimizer, optimizer_state, options=_SHARDED)
        for group, options in zip(optimizer.param_groups, own, strict=True):
            group.update(options if keep_settings else {key: options[key] for key in options.keys() - group.keys()})
    return parts["extra"], values["scalars"]


def _check_kept(folder: Path, values: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """Refuse a state that has nothing in common with what the optimizer keeps already, if it does."""
    own = {str(key) for state in optimizer.state.values() for key in state}
    kept = {key for _, key, *_ in [*values["kept"], *values["numbers"]]}
    if own and kept and not own & kept:
        raise RecordError(
            f"{folder}: the state of another optimizer: it holds {', '.join(sorted(kept))}, and "
            f"{type(optimizer).__name__} keeps {', '.join(sorted(own))}. Follow a run of the same one"
        )


def _as_held(tensor: Tensor, held: Tensor | None) -> Tensor:
    """Return a whole tensor, or this rank's part of it, as the model holds the parameter that it belongs to.

    torch would send every rank its part, and refuses a model that lies on several devices, as with offloaded parameters
    and buffers on the GPU.
    """
    if not isinstance(held, DTensor) or held.shape != tensor.shape:
        return tensor
    return distribute_tensor(tensor, held.device_mesh, held.placements, src_data_rank=None).to(held.device)


def _gathered(model: nn.Module) -> StateDictOptions:
    """Return how torch gathers a state: whole on rank 0, or not at all where its way cannot."""
    meshes = {p.device_mesh for p in model.parameters() if isinstance(p, DTensor)}
    return _SHARDED if any(map(by_host, meshes)) else _OPTIONS


def _on_rank_0(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a state whole, on the CPU.

    None on other ranks, which take part where torch has not gathered them.
    """
    main = not dist.is_initialized() or dist.get_rank() == 0
    found = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            continue
        gathered = whole(value) if isinstance(value, DTensor) else value
        if main:
            found[name] = gathered.detach().cpu().contiguous()
    return found
