"""``vramdoc gpus``: real devices (NVML) and virtual ones."""

from __future__ import annotations

import json
import sys

from vramdoc.cli import options


def gpus(json_output: options.Json = False, verbose: options.Verbose = False) -> None:
    """List the GPUs that --gpu takes: real ones here, and virtual ones anywhere."""
    from vramdoc.cli import terminal
    from vramdoc.record.devices import real_gpus
    from vramdoc.report.gpu_list import gpu_rows, render_gpu_table
    from vramdoc.virtual_gpu.catalogue import CATALOGUE

    real, note = real_gpus()
    rows = gpu_rows(real, CATALOGUE.values())
    if json_output:
        terminal.show(
            json.dumps({"schema_version": 1, "gpus": rows, "note": note}, indent=2, sort_keys=True)
        )
        return
    screen = terminal.terminal_of(sys.stdout)
    terminal.show(
        render_gpu_table(
            rows,
            **screen.shape,
            verbose=verbose,
        )
    )
    if note:
        terminal.say(note)
