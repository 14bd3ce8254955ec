"""A change as text to paste, for each place where people set such things. It knows forms, no remedy."""

from __future__ import annotations

from collections.abc import Mapping

CUDA_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


def environment_snippets(variables: Mapping[str, str]) -> dict[str, str]:
    """Set ``variables`` in bash, PowerShell, cmd, Python, a Dockerfile and a Kubernetes manifest."""
    items = list(variables.items())
    python = "\n".join(f'os.environ["{name}"] = "{value}"' for name, value in items)
    kubernetes = "\n".join(f'  - name: {name}\n    value: "{value}"' for name, value in items)
    return {
        "bash": "\n".join(f"export {name}='{value}'" for name, value in items),
        "powershell": "\n".join(f'$env:{name} = "{value}"' for name, value in items),
        "cmd": "\n".join(f"set {name}={value}" for name, value in items),
        "python": f"# the first lines of the program, above every import of torch\nimport os\n{python}\nimport torch",
        "dockerfile": "\n".join(f'ENV {name}="{value}"' for name, value in items),
        "kubernetes": f"env:  # of the container\n{kubernetes}",
    }


def variable_for(
    release: tuple[int, int] | None, *, in_use: str = "", is_rocm: bool = False
) -> str:
    """The variable to set: one that the release reads, and never a second one beside ``in_use``.

    CUDA builds of every release read PYTORCH_CUDA_ALLOC_CONF; PYTORCH_ALLOC_CONF is read from 2.10 on only, although 2.9
    already advises it (allocator-spec 6.1).
    """
    reads_plain_name = release is not None and release >= (2, 10)
    if in_use == "PYTORCH_ALLOC_CONF" and reads_plain_name:
        return in_use
    return "PYTORCH_HIP_ALLOC_CONF" if is_rocm else CUDA_VARIABLE


def settings_text(settings: Mapping[str, str]) -> str:
    """Options as the allocator's string."""
    return ",".join(f"{key}:{value}" for key, value in settings.items())
