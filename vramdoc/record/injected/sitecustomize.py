"""Runs at the start of every Python under ``vramdoc record``; waits for the program to import torch, and does nothing else.

It takes itself off the path and hands over to the sitecustomize that would have run without it. It must work in any Python and cost
nothing, so it is plain and imports only what an interpreter has loaded anyway. vramdoc itself is loaded when torch is, by its
place on disk: the program's path stays as it was.
"""

import os
import sys

VARIABLE = "VRAMDOC_RECORDING"
"""Holds the settings; see ``record.settings``. Without it this file has no effect."""


def _hand_over() -> None:
    """Run the environment's own sitecustomize, if it has one, in this one's place."""
    here = __file__.rpartition(os.sep)[0]
    sys.path[:] = [entry for entry in sys.path if entry != here]
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)


class _TorchFinder:
    """Steps in when torch is imported, and out again at once."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """What the finders behind this one find, with a call of ours after the import."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type] # a finder, without importing its types
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)  # type: ignore[arg-type] # handed on as they came
            if spec is not None:
                _call_after_import(spec.loader)
                return spec
        return None


def _call_after_import(loader: object) -> None:
    execute = getattr(loader, "exec_module", None)

    def exec_module(module: object) -> None:
        del loader.exec_module  # type: ignore[attr-defined] # set below
        execute(module)  # type: ignore[misc] # not None, see below
        _attach()

    if execute is not None:
        loader.exec_module = exec_module  # type: ignore[attr-defined] # for this one import


def _attach() -> None:
    try:
        _load_vramdoc()
        from vramdoc.record.inside.script import attach  # noqa: PLC0415

        attach(os.environ[VARIABLE])
    except Exception as error:  # noqa: BLE001 # whatever is wrong with the recorder, the program runs on
        sys.stderr.write(
            f"vramdoc: this process is not recorded ({type(error).__name__}: {error})\n"
        )


def _load_vramdoc() -> None:
    if "vramdoc" in sys.modules:
        return
    import importlib.util  # noqa: PLC0415 # torch has loaded it by now

    package = __file__.rsplit(os.sep, 3)[0]
    spec = importlib.util.spec_from_file_location(
        "vramdoc", f"{package}{os.sep}__init__.py", submodule_search_locations=[package]
    )
    if spec is None or spec.loader is None:
        raise ImportError("vramdoc is not where it was")
    module = importlib.util.module_from_spec(spec)
    sys.modules["vramdoc"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize" and VARIABLE in os.environ:
    _hand_over()
    sys.meta_path.insert(0, _TorchFinder())  # type: ignore[arg-type] # a finder, without importing its types
