"""Hostile and broken snapshots, each made by a few lines. Name -> bytes; none may run, hang, fill memory or end in a traceback."""

import gzip
import os
import pickle
import struct

from tests.snapshot.plain import block, event, segment, snapshot


class Evil:
    """What a malicious pickle does: asks to call something."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


class Outside(pickle.Pickler):
    """Writes a persistent id."""

    def persistent_id(self, obj):
        return "storage" if isinstance(obj, frozenset) else None


def outside():
    import io

    stream = io.BytesIO()
    Outside(stream, 4).dump({"segments": frozenset()})
    return stream.getvalue()


HEAD = b"\x80\x04"
GOOD = pickle.dumps(snapshot([segment(0, [block(0, 512)])], [event("alloc", 0, 512)]), 4)


BOMBS_OF_LISTS = (
    HEAD + b"}\x94(\x8c\x08segments]\x94\x8c\x06framesh\x01h\x01h\x00h\x00u.",
    HEAD + b"](}\x94(\x8c\x06frames]\x94h\x00ah\x01ue.",
)
"""Small files whose lists hold one another; seeds for the fuzzer."""


def calls():
    """Pickles that ask for something to be imported, built or called."""
    for protocol in range(6):
        yield (
            f"reduce, protocol {protocol}",
            pickle.dumps({"segments": Evil(os.system, "true")}, protocol),
        )
    yield "object of a class", pickle.dumps({"segments": [Evil(print)]}, 4)
    yield "inst", b"(S'touch'\nios\nsystem\n."
    yield "global as a value", b"\x80\x02cos\nsystem\n."
    yield "global with odd names", b"\x80\x02c\x1b[31m\n\xff\n."
    yield "stack global", HEAD + b"\x8c\x02os\x8c\x06system\x93."
    yield "stack global without names", HEAD + b"NN\x93."
    yield "newobj on a value", HEAD + b"K\x01)\x81."
    yield "newobj_ex on a value", HEAD + b"K\x01)}\x92."
    yield "build on a dictionary", HEAD + b"}}b."
    yield "reduce on a value", HEAD + b"K\x01)R."
    yield "obj", b"\x80\x02(K\x01o."
    yield "persistent id", outside()
    yield "persistent id, text", b"Pstorage\n."
    yield "extension 1", b"\x80\x02\x82\x01."
    yield "extension 4", b"\x80\x02\x84\xff\xff\xff\x7f."
    yield "outside buffer", b"\x80\x05\x97."
    yield "import of a long name", b"cos\n" + b"\0" * 10_000 + b"m\n."
    yield "import without an end", b"\x80\x02c" + b"A" * 10_000


def bombs():
    """Small files that unfold, or declare, far more than they hold."""
    yield "memo index of four billion", HEAD + b"}r\xff\xff\xff\xff."
    yield (
        "memo index of four billion inside two frames",
        in_frame(in_frame(b"}r\xff\xff\xff\xff0")) + b"}.",
    )
    yield "memo index of two billion, protocol 2", b"\x80\x02]r\xff\xff\xff\x7f."
    yield "memo index, text", b"(lp4294967295\n."
    yield "text of 2^62 bytes", HEAD + b"\x8d" + struct.pack("<Q", 1 << 62) + b"x."
    yield "text of 4 GiB", HEAD + b"X\xff\xff\xff\xffx."
    yield "bytes of 2^62", HEAD + b"\x8e" + struct.pack("<Q", 1 << 62) + b"x."
    yield "bytearray of 2^40", b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x."
    yield "frame of 2^62", HEAD + b"\x95" + struct.pack("<Q", 1 << 62) + b"}."
    yield "integer of 2 GiB", HEAD + b"\x8b\xff\xff\xff\x7fx."
    yield "negative length", HEAD + b"\x8b\xff\xff\xff\xff."
    yield "one million lists in lists", HEAD + b"]" * 1_000_000 + b"a" * 999_999 + b"."
    yield "one million tuples in tuples", HEAD + b")" + b"\x85" * 1_000_000 + b"."
    yield "values without an end", HEAD + b"N" * 20_000_000
    yield "sets without an end", HEAD + b"\x8f" * 2_000_000
    yield "dictionaries without an end", HEAD + b"}" * 2_000_000
    yield "doubling pairs", doubling_pairs()
    yield "one list of events for a thousand devices", shared_events(1000, 20_000)
    yield "one segment a million times", shared_segments()
    yield "one stack of a million frames in every event", shared_stack()
    yield "a list that holds itself", HEAD + b"}\x94\x8c\x08segments]\x94h\x01ah\x01s."
    yield "gzip of a gigabyte", gzip.compress(HEAD + bytes(1 << 30), 9)
    yield "json of absurd depth", b'{"segments": ' + b"[" * 1_000_000
    yield "json number of a million digits", b'{"segments": [], "x": ' + b"9" * 1_000_000 + b"}"


def in_frame(opcodes):
    return HEAD + b"\x95" + struct.pack("<Q", len(opcodes)) + opcodes


def doubling_pairs():
    """Forty pairs, each of the one before and itself: a thousand billion values when walked."""
    return HEAD + b"}(\x8c\x08segments]\x8c\x01x]" + b"2\x86" * 40 + b"u."


def shared_events(devices, events):
    one = HEAD + b"}(\x8c\x08segments]\x8c\x0ddevice_traces]("
    trace = b"]\x94(" + b"".join(b"}(\x8c\x06action\x8c\x05allocu" for _ in range(events)) + b"e"
    return one + trace + b"h\x00" * (devices - 1) + b"eu."


def shared_segments():
    blocks = b"](" + b"}(\x8c\x04sizeK\x01\x8c\x05state\x8c\x08inactiveu" * 1000 + b"e"
    one = b"}\x94(\x8c\x0atotal_sizeK\x01\x8c\x06blocks" + blocks + b"u"
    return HEAD + b"}(\x8c\x08segments](" + one + b"h\x00" * 1_000_000 + b"eu."


def shared_stack():
    frame = b"}\x94(\x8c\x08filename\x8c\x01f\x8c\x04lineK\x01\x8c\x04name\x8c\x01nu"
    stack = b"]\x94(" + frame + b"h\x01" * 1_000_000 + b"e"
    events = b"}(\x8c\x06action\x8c\x05alloc\x8c\x06frames" + stack + b"u"
    events += b"}(\x8c\x06action\x8c\x05alloc\x8c\x06framesh\x00u" * 100_000
    return HEAD + b"}(\x8c\x08segments]\x8c\x0ddevice_traces](](" + events + b"eeu."


def damage():
    """Files that are not what they seem, or not whole."""
    yield "nothing", b""
    yield "one byte", b"\x80"
    yield "header alone", HEAD
    yield "text", b"hello\n"
    yield "a list", pickle.dumps([1, 2, 3])
    yield "a number", pickle.dumps(7)
    yield "segments are a number", pickle.dumps({"segments": 7})
    yield "no segments", pickle.dumps({"device_traces": []})
    yield "unknown protocol", b"\x80\x09}."
    yield "no opcode", HEAD + b"\xff."
    yield "text that is no utf-8", HEAD + b"}(\x8c\x08segments]\x8c\x02\xff\xfeNu."
    yield "gzip of nothing", gzip.compress(b"")
    yield "gzip cut off", gzip.compress(GOOD)[:-20]
    yield "gzip of text", gzip.compress(b"hello")
    yield "gzip header alone", b"\x1f\x8b\x08"
    yield "json cut off", b'{"segments": [{"address": 1'
    yield "json with a wrong type", b'{"segments": {"a": 1}}'
    yield "html without a snapshot", b"<!DOCTYPE html><script>add_local_files([])</script>"
    yield (
        "html with a broken snapshot",
        b'<!DOCTYPE html><script>add_local_files([{"base64": "gASVAA"}])</script>',
    )
    yield "key of a dictionary is a list", HEAD + b"}(]Nu."
    yield "odd number of items", HEAD + b"}(\x8c\x01au."
    yield "an opcode without a value", HEAD + b"a."
    yield "memo read before it was written", HEAD + b"h\x05."
    yield "two billion different actions", many_actions()


def many_actions():
    events = [{"action": f"a{number}"} for number in range(400)]
    return pickle.dumps({"segments": [], "device_traces": [events]})
