"""What launchers, containers and consoles do to a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

BEFORE = (
    "Traceback (most recent call last):\n"
    '  File "/srv/app/train.py", line 12, in <module>\n    main()\n'
    '  File "/srv/app/train.py", line 8, in main\n    loss = model(batch).sum()\n'
    "torch.OutOfMemoryError: "
)
AFTER = "\n\nDuring handling of the above exception, another exception occurred:\nSystemExit: 1\n"


def each_line(prefix: str) -> Callable[[str], str]:
    """Put ``prefix`` before every line."""
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


NOISES: Mapping[str, Callable[[str], str]] = {
    "bare": lambda text: text,
    "traceback": lambda text: BEFORE + text + AFTER,
    "CRLF": lambda text: (BEFORE + text + AFTER).replace("\n", "\r\n"),
    "torchrun": each_line("[rank3]: "),
    "torchrun -l": each_line("[default1]:"),
    "srun": each_line("2: "),
    "mpirun": each_line("[1,2]<stderr>:"),
    "vLLM": each_line(
        "(VllmWorker rank=1 pid=410001) ERROR 03-19 07:27:53 [multiproc_executor.py:375] "
    ),
    "Ray": each_line("(RayActor pid=2217, ip=10.0.0.4) "),
    "Kubernetes": each_line("2024-06-28T06:11:52.685300953Z stderr F "),
    "docker compose": each_line("trainer-1  | "),
    "journald": each_line("Mar 01 10:00:07 node7 trainer[4711]: "),
    "a quoted mail": each_line("> "),
    "pytest": each_line("E       "),
    "logging on each line": each_line("2024-02-03 03:44:03,976 - app.run - ERROR - "),
    "logging": lambda text: "2024-02-03 03:44:03,976 - ERROR - engine.py - step failed: " + text,
    "ANSI": lambda text: (
        "\x1b[1;36m(EngineCore_0 pid=7)\x1b[0;0m ERROR \x1b[31m"
        + text.replace("memory", "\x1b[1mmemory\x1b[0m")
        + "\x1b[0m"
    ),
    "colour codes without escape": lambda text: "[31m" + text + "[0m",
    "JSON": lambda text: json.dumps({"level": "error", "message": BEFORE + text}),
    "Rust string": lambda text: (
        "thread 'main' panicked at 'Unable to warmup: Generation(\""
        + text.replace("\n", "\\n")
        + "\")', src/main.rs:216"
    ),
    "wrapped at words": lambda text: "\n".join(_wrapped(text)),
}


def _wrapped(text: str) -> list[str]:
    lines, line = [], ""
    for word in text.replace("\n", " \n ").split(" "):
        if len(line) + len(word) > 76:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    return [*lines, line]
