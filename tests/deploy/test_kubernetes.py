"""deploy/kubernetes.yaml against the types that Kubeflow Trainer and Kubernetes publish; no cluster is needed."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_trainer_api import models
from pydantic import ValidationError

from trainparity import __version__
from trainparity.environment import NODES
from trainparity.launch.nodes import RENDEZVOUS

ROOT = Path(__file__).parents[2]
DOCUMENTS: list[Any] = list(yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text()))
CLAIM, RUNTIME, JOB = DOCUMENTS
[NODE] = RUNTIME["spec"]["template"]["spec"]["replicatedJobs"]
POD = NODE["template"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
SERVICE = yaml.safe_load((ROOT / "compose.yaml").read_text())["x-networked"]
MODELS: dict[tuple[str, str], Any] = {
    ("v1", "PersistentVolumeClaim"): models.IoK8sApiCoreV1PersistentVolumeClaim,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): models.TrainerV1alpha1TrainingRuntime,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): models.TrainerV1alpha1TrainJob,
}


def check(document: Any) -> None:
    """Raise for a field that is wrong or missing; one that is not of the type doesn't survive reading."""
    model = MODELS[document["apiVersion"], document["kind"]]
    assert model.from_dict(document).to_dict() == document


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["kind"])
def test_every_document_is_of_its_type(document: Any) -> None:
    check(document)


def job(runtime: Any) -> Any:
    return runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]


def container(runtime: Any) -> Any:
    return job(runtime)["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("document", "spoil"),
    [
        (CLAIM, lambda d: d["spec"].update(accessMode=["ReadWriteMany"])),
        (RUNTIME, lambda d: d.update(apiVersion="trainer.kubeflow.org/v1")),
        (RUNTIME, lambda d: job(d).update(completionMode="indexed")),
        (RUNTIME, lambda d: job(d).pop("template")),
        (RUNTIME, lambda d: container(d).pop("name")),
        (RUNTIME, lambda d: container(d).update(args="dvc repro")),
        (RUNTIME, lambda d: container(d)["securityContext"].update(readonlyRootFilesystem=True)),
        (JOB, lambda d: d["spec"]["trainer"].update(numNodes="2")),
        (JOB, lambda d: d["spec"].pop("runtimeRef")),
    ],
)
def test_a_mistake_would_be_found(document: Any, spoil: Callable[[Any], object]) -> None:
    spoilt = copy.deepcopy(document)
    spoil(spoilt)
    with pytest.raises((KeyError, ValidationError, AssertionError)):
        check(spoilt)


def test_the_documents_belong_together() -> None:
    reference = JOB["spec"]["runtimeRef"]
    assert f"{reference['apiGroup']}/v1alpha1" == RUNTIME["apiVersion"]
    assert (reference["kind"], reference["name"]) == (RUNTIME["kind"], RUNTIME["metadata"]["name"])
    claims = [volume["persistentVolumeClaim"] for volume in POD["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == [{"claimName": CLAIM["metadata"]["name"]}]
    assert CLAIM["spec"]["accessModes"] == ["ReadWriteMany"]
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}


def test_a_node_is_locked_down() -> None:
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["securityContext"]["runAsNonRoot"] and POD["securityContext"]["runAsUser"] == 1000
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["automountServiceAccountToken"] is False


def test_a_node_has_what_compose_gives_it() -> None:
    [published] = re.findall(r"^\$\{CPU_IMAGE:-(.*)\}$", SERVICE["image"])
    assert CONTAINER["image"] == published == f"ghcr.io/trainparity/trainparity:{__version__}-cpu"
    assert POD["terminationGracePeriodSeconds"] == int(SERVICE["stop_grace_period"].removesuffix("s"))
    mounted = {Path(mount["mountPath"]) for mount in CONTAINER["volumeMounts"]}
    for path in [entry.split(":")[0] for entry in SERVICE["tmpfs"]] + [v.split(":")[1] for v in SERVICE["volumes"]]:
        assert mounted & {Path(path), *Path(path).parents}, path


def test_trainer_finds_the_node_and_the_node_what_the_code_reads() -> None:
    # Trainer sets PET_* in the container of this name, in the job of this label (its plugin for torch).
    assert NODE["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert CONTAINER["name"] == "node"
    script = CONTAINER["command"][-2]
    assert f'{NODES}="$PET_NNODES"' in script
    assert f'{RENDEZVOUS}="$PET_MASTER_ADDR:$PET_MASTER_PORT"' in script
