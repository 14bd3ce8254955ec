"""Reading snapshots of growing size, beside bare ``pickle.load`` and the peers (``loading``)."""

from __future__ import annotations

from loading import contestants, cost, growth, table
from section import Options, Section

BARE, OURS = "pickle.load, collector off", "vramdoc: read"
PEERS_UP_TO = 1_000_000
"""Beyond it Python peers need more than 7 GiB."""


def measure(options: Options) -> Section:
    costs = {}
    for events in options.sizes:
        snapshot = options.snapshot(events)
        costs[events] = {
            name: cost(command, snapshot)
            for name, command in contestants(options.peers).items()
            if events <= PEERS_UP_TO or name in {BARE, OURS}
        }
    parts = [table(events, found) for events, found in costs.items()]
    if len(costs) > 1:
        parts.append(growth(costs))
    base = costs[options.largest]
    ours = base[OURS]
    ratios = {}
    for name, one in base.items():
        if one is not None and ours is not None and not name.startswith("vramdoc"):
            ratios[f"read {options.largest:,}: CPU beside {name}"] = ours.seconds / one.seconds
            ratios[f"read {options.largest:,}: memory beside {name}"] = (
                ours.mebibytes / one.mebibytes
            )
    head = (
        "Each contestant in a process of its own, best of three by CPU (those beyond 4 s once), start-up included. Growth is the slope in log-log from one "
        "size to the next: 1.0 is proportional, less is start-up that weighs less. A peer that failed ended with an error of its own on that file."
    )
    return Section(text="\n\n".join([head, *parts]), ratios=ratios)
