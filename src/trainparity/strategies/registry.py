"""The strategies by their names in params.yaml. Adding one is a file and an entry here."""

STRATEGIES = {
    "single": "trainparity.strategies.base:Strategy",
    "data_parallel": "trainparity.strategies.data_parallel:DataParallel",
    "ddp": "trainparity.strategies.ddp:Ddp",
    "fsdp": "trainparity.strategies.fsdp:Fsdp",
    "fsdp_tensor_parallel": "trainparity.strategies.fsdp_tensor_parallel:FsdpTensorParallel",
    "tensor_parallel": "trainparity.strategies.tensor_parallel:TensorParallel",
}
"""`module:Class`, imported when asked for."""
