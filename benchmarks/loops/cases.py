"""(reference, variant, ranks, expected verdict, causes that fit) by script: what the driver of a zoo reads."""

SAME = "bitwise|equivalent"


def _pairs(right: str, **wrong: str) -> list[tuple[str, str, int, str, str]]:
    return [
        *(("ref", variant, 1, SAME, "") for variant in ["ref", *right.split()]),
        *(("ref", f"bug_{variant}", 1, "different", cause) for variant, cause in wrong.items()),
    ]


CASES = {
    "torchvision": ("torchvision_reference.py", _pairs(
        "accum channels_last", normdecay="optimizer-state", warmup="schedule", smoothing="loss-or-targets",
        noclip="clipping",
    )),
    "timm": ("timm_train.py", _pairs(
        "accum compile accum+compile", headrate="learning-rate|schedule", leftover="loss-normalisation",
        zeroinside="gradients-not-zeroed", detach="frozen-parameter",
    ) + [("bf16", "bf16+accum", 1, SAME, ""), ("ref", "bf16", 1, "different", "precision")]),
    "diffusers": ("diffusers_train.py", _pairs(
        "accum", activation="forward", times="inputs", target="loss-or-targets", weights="loss-or-targets",
        nozero="gradients-not-zeroed",
    )),
    "no_trainer": ("no_trainer.py", _pairs("accum", shift="loss-or-targets", padding="loss-or-targets") + [
        ("ref", "accum+bug_tokenmean", 1, "different", "loss-normalisation"),
    ]),
    "lora": ("lora.py", _pairs(
        "accum", unfrozen="frozen-parameter|parameters-not-updated", alpha="forward", horizon="schedule",
    ) + [("ref", "accum+bug_skipped", 1, "different", "missing-backward")]),
    "actor_critic": ("actor_critic.py", _pairs(
        "accum", detachtrunk="backward", advantage="loss-or-targets", alpha="optimizer-state", limit="clipping",
    )),
    "detection": ("detection.py", _pairs("accum", labels="loss-or-targets", twice="samples", nobox="")),
    "contrastive": ("contrastive.py", [
        ("ref", "ref", 1, "bitwise", ""),
        ("ref", "accum", 1, "different", "batch-coupled-loss|loss-or-targets|samples"),
        ("ref", "bug_temperature", 1, "different", "loss-or-targets"),
    ]),
    "variational": ("variational.py", _pairs(
        "accum compile accum+compile", deviation="forward", detach="backward", beta="loss-or-targets",
    )),
    "own_optimizer": ("own_optimizer.py", _pairs(
        "accum fused", iterations="update", length="update", nesterov="optimizer-state", rate="learning-rate",
        smoothing="loss-or-targets",
    )),
    "one_state_at_a_time": ("one_state_at_a_time.py", _pairs(
        "accum batched", discount="loss-or-targets", scale="loss-or-targets", through="loss-or-targets",
        nozero="gradients-not-zeroed",
    )),
    "autoencoder": ("autoencoder.py", _pairs("accum", target="loss-or-targets", dropped="samples")),
}  # fmt: skip
