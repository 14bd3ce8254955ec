"""Snapshots as plain containers, built by hand or by hypothesis, and a comparison of what was read from them."""

import pickle

import numpy as np
from hypothesis import strategies as st

from vramdoc.snapshot.model import ACTIONS, Snapshot

FRAMES = [
    {"filename": "/home/someone/project/train.py", "line": 10, "name": "step"},
    {"filename": "/opt/lib/python3.11/site-packages/torch/nn/modules/linear.py", "line": 125, "name": "forward"},
    {"filename": "??", "line": 0, "name": "at::empty"},
]  # fmt: skip


def block(address, size, state="active_allocated", requested=None, frames=()):
    return {
        "address": address,
        "size": size,
        "requested_size": size if requested is None else requested,
        "state": state,
        "frames": list(frames),
    }


def segment(address, blocks, **changes):
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {
        "device": 0,
        "address": address,
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "active_size": active,
        "requested_size": sum(b["requested_size"] for b in blocks if b["state"] != "inactive"),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": blocks,
        "frames": [],
        **changes,
    }


def event(action, addr, size, **changes):
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": 1_764_576_000_000_000,
        "frames": [],
        **changes,
    }


def snapshot(segments=(), events=(), **changes):
    return {
        "segments": list(segments),
        "device_traces": [list(events)],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
        "external_annotations": [],
        **changes,
    }


def assert_same(ours: Snapshot, reference: Snapshot) -> None:
    """Equal in everything but the numbering of stacks, pools and actions."""
    for name in ("segments", "host_segments", "allocator_settings", "annotations", "problems"):
        assert getattr(ours, name) == getattr(reference, name), name
    assert ours.unknown == reference.unknown
    assert len(ours.traces) == len(reference.traces)
    for one, other in zip(ours.traces, reference.traces, strict=True):
        assert one.device == other.device
        assert len(one) == len(other)
        for column in ("address", "size", "stream", "time_us"):
            assert np.array_equal(getattr(one, column), getattr(other, column)), column
        assert resolved(one, "action", one.actions) == resolved(other, "action", other.actions)
        assert resolved(one, "pool", one.pools) == resolved(other, "pool", other.pools)
        assert resolved(one, "stack", one.stacks) == resolved(other, "stack", other.stacks)


def resolved(trace, column, names):
    codes = getattr(trace, column).tolist()
    known = {code: None if code < 0 else names[code] for code in set(codes)}
    return [known[code] for code in codes]


# What a snapshot may hold, including what it should not.
integers = st.integers(-(2**70), 2**70) | st.integers(0, 2**48) | st.booleans()
oddities = st.none() | st.text(max_size=5) | st.floats(allow_nan=False) | st.just([])
frames = st.sampled_from(FRAMES) | st.fixed_dictionaries(
    {},
    optional={
        "filename": st.text(max_size=4) | st.none(),
        "line": integers,
        "name": st.text(max_size=4),
    },
)
stacks = st.lists(frames, max_size=4) | oddities
pool_ids = st.tuples(st.integers(0, 3), st.integers(0, 2**40)) | st.lists(
    st.integers(-1, 2), max_size=3
)
events = st.fixed_dictionaries(
    {"action": st.sampled_from(ACTIONS) | st.text(max_size=3) | st.integers()},
    optional={
        "addr": integers | oddities, "device_free": integers, "size": integers | oddities, "stream": integers,
        "time_us": integers | st.none(), "pool_id": pool_ids | oddities, "frames": stacks, "compile_context": st.text(max_size=3),
    },
)  # fmt: skip
blocks = st.fixed_dictionaries(
    {"size": integers, "state": st.sampled_from(["inactive", "active_allocated", "active_awaiting_free", "?"])},
    optional={
        "address": integers, "requested_size": integers, "frames": stacks,
        "history": st.lists(st.fixed_dictionaries({"real_size": integers, "frames": stacks}), max_size=2),
    },
)  # fmt: skip
segments = st.fixed_dictionaries(
    {"address": integers, "total_size": integers, "blocks": st.lists(blocks, max_size=4)},
    optional={
        "device": st.integers(0, 2),
        "segment_pool_id": pool_ids,
        "is_expandable": st.booleans(),
        "stream": integers,
    },
)
snapshots = st.fixed_dictionaries(
    {"segments": st.lists(segments | oddities, max_size=3)},
    optional={
        "device_traces": st.lists(st.lists(events | oddities, max_size=6) | oddities, max_size=3),
        "external_annotations": st.lists(
            st.fixed_dictionaries({"name": st.text(max_size=3), "stage": st.text(max_size=3), "time_us": integers}),
            max_size=3,
        ),
        "allocator_settings": st.dictionaries(st.text(max_size=3), integers | oddities, max_size=3),
        "something_new": st.recursive(integers | oddities, lambda inner: st.lists(inner, max_size=2), max_leaves=4),
    },
)  # fmt: skip


def pickled(data, protocol=4):
    return pickle.dumps(data, protocol)
