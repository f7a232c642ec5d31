"""What the callbacks say of a wrong use; tests/examples runs them in real loops."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

lightning = pytest.importorskip("lightning")


def test_several_optimizers_are_refused(tmp_path: Any) -> None:
    from trainparity.lightning import RecordCallback

    trainer = cast(Any, SimpleNamespace(optimizers=[1, 2]))
    with pytest.raises(ValueError, match=r"2 optimizers: call trainparity\.record for each"):
        RecordCallback(tmp_path).on_train_start(trainer, cast(Any, None))
