"""Python imports this module when it starts under `trainparity run`: it prepares the recording.

The command's environment puts this file's folder first on PYTHONPATH, with a link to the package `trainparity` beside
it, so that interpreters which have no trainparity installed are recorded by the same code. The folder is removed from
`sys.path` again: the script sees the path that it would see without us.
"""

import sys
from pathlib import Path


def _prepare() -> None:
    """Wait for torch to be imported."""
    if sys.version_info < (3, 11):  # noqa: UP036 -- the recorded interpreter may be any
        Path(__file__).with_name("too-old").touch()
        return
    from trainparity.attach.watch import watch

    watch()


def _run_the_users_own() -> None:
    """Import the `sitecustomize` that Python would have found without ours."""
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


try:
    _prepare()
finally:
    here = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    _run_the_users_own()
