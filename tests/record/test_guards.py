"""Guards name what failed and where, put back what torch broke, and change nothing else."""

import pytest

pytestmark = pytest.mark.virtual_gpu


def test_a_cache_grown_past_a_mapped_file(record) -> None:
    """Also without any use of the GPU: the failure is worth a recording."""
    seen = record.run(
        """
        import torch
        from safetensors.torch import load_file, save_file
        save_file({"layer.0": torch.zeros(1, 2, 4, 8)}, "prompt.safetensors")

        class Cache:
            def __init__(self):
                self.keys = load_file("prompt.safetensors")["layer.0"]

            def grow(self, length):
                self.keys.resize_(1, 2, length, 8)

        cache = Cache()
        try:
            cache.grow(400)
        except RuntimeError as error:
            print(error, cache.keys.shape, float(cache.keys.sum()))
        cache.grow(500)
        """
    )
    assert seen.code == 1
    assert seen.out == (
        "Trying to resize storage that is not resizable torch.Size([1, 2, 4, 8]) 0.0\n"
    )
    first, second = seen.observations("resize")
    origin = first.pop("origin")
    assert (origin["kind"], origin["path"].rpartition("/")[2]) == ("file", "prompt.safetensors")
    assert first.pop("file").endswith("train.py")
    assert first == {
        "operation": "Tensor.resize_",
        "tensor": "self.keys",
        "wanted_bytes": 25_600,
        "owned_bytes": 256,
        "line": 11,
        "function": "grow",
        "source": "self.keys.resize_(1, 2, length, 8)",
        "repaired": True,
    }
    assert second["wanted_bytes"] == 32_000
    manifest = seen.recording.manifest
    assert (str(manifest.exit.kind), manifest.exit.code, manifest.device) == ("resize", 1, None)
    assert not (seen.recording.folder / "rank-1").exists()


def test_origins_and_operations(record) -> None:
    seen = record.run(
        """
        import numpy as np, torch

        def attempt(call):
            try:
                call()
            except RuntimeError:
                pass

        array = np.zeros(16, "f4")
        view = torch.from_numpy(array)[4:]
        attempt(lambda: view.resize_(100))
        exported = torch.zeros(8)
        kept = exported.numpy()
        attempt(lambda: exported.resize_as_(torch.zeros(99)))
        torch.save({"w": torch.zeros(100)}, "w.pt")
        loaded = torch.load("w.pt")["w"]
        attempt(lambda: loaded.untyped_storage().resize_(50_000))
        attempt(lambda: loaded.set_(loaded.untyped_storage(), 0, (9_999,)))
        shared = torch.zeros(4).share_memory_()
        attempt(lambda: shared.resize_(5_000))
        attempt(lambda: shared.untyped_storage().resize_(5_000))
        blob = torch.frombuffer(bytearray(64), dtype=torch.uint8)
        attempt(lambda: blob.resize_(65))
        for tensor in (view, exported, loaded, shared, blob):
            print(tuple(tensor.shape), end=" ")
        """
    )
    assert seen.out == "(12,) (8,) (100,) (4,) (64,) "
    rows = [
        (o["operation"], o["origin"]["kind"], o["owned_bytes"], o["wanted_bytes"], o["line"])
        for o in seen.observations("resize")
    ]
    assert rows == [
        ("Tensor.resize_", "numpy", 64, 416, 12),
        ("Tensor.resize_as_", "numpy", 32, 396, 15),
        ("UntypedStorage.resize_", "checkpoint", 400, 50_000, 18),
        ("Tensor.set_", "checkpoint", 400, 39_996, 19),
        ("Tensor.resize_", "shared", 16, 20_000, 21),
        ("UntypedStorage.resize_", "shared", 16, 5_000, 22),
        ("Tensor.resize_", "foreign", 64, 65, 24),
    ]


def test_an_out_argument_is_found_by_its_corruption(record) -> None:
    seen = record.run(
        """
        import numpy as np, torch

        def step(ring):
            torch.cat([torch.zeros(100), torch.zeros(100)], out=ring["last"])

        ring = {"last": torch.from_numpy(np.zeros(16, "f4"))}
        step(ring)
        """
    )
    (seen_once,) = seen.observations("resize")
    assert seen_once["operation"] == "out="
    assert seen_once["tensor"] == "ring['last']"
    assert (seen_once["owned_bytes"], seen_once["wanted_bytes"]) == (64, 800)
    assert (seen_once["line"], seen_once["origin"]["kind"]) == (5, "foreign")


def test_what_torch_allows_is_no_observation(record) -> None:
    seen = record.run(
        """
        import numpy as np, torch
        torch.zeros(4).resize_(100)
        torch.from_numpy(np.zeros(16, "f4")).resize_(4).resize_(16)
        torch.zeros(4).share_memory_().resize_(2)
        torch.zeros(4).untyped_storage().resize_(0)
        for wrong in (("x",), (-1,), ()):
            try:
                torch.zeros(4).share_memory_().resize_(*wrong)
            except (RuntimeError, TypeError) as error:
                print(type(error).__name__)
        leaf = torch.zeros(3, requires_grad=True)
        try:
            leaf.resize_(5)
        except RuntimeError as error:
            print(error)
        buffer = torch.zeros(4, 4)
        buffer[4:] = 0
        buffer[:, 2:4] = torch.ones(4, 2)
        buffer[4:8] = torch.ones(0, 4)
        buffer[1] = torch.ones(4)
        buffer[torch.tensor([0]), 1:2] = torch.ones(1, 1)
        buffer[-1:] = torch.ones(1, 4)
        print(torch.ones(2, device="cuda").half().dtype)
        """
    )
    assert seen.out == (
        "TypeError\nRuntimeError\nTypeError\ncannot resize variables that require grad\ntorch.float16\n"
    )
    assert {o.kind for o in seen.recording.manifest.observations} == {"cast"}


def test_a_token_that_a_full_cache_loses(record) -> None:
    seen = record.run(
        """
        import torch
        class Layer:
            def __init__(self):
                self.k = torch.zeros(1, 2, 4, 8, device="cuda")
        layer = Layer()
        for position in range(6):
            layer.k[..., position:position + 1, :] = torch.ones(1, 2, 1, 8, device="cuda")
        """
    )
    (lost,) = seen.observations("cache-overflow")  # once a line, not once a token
    assert (lost["tensor"], lost["dimension"], lost["start"], lost["size"], lost["line"]) == (
        "layer.k",
        2,
        4,
        4,
        8,
    )
    assert lost["shape"] == [1, 2, 4, 8]


def test_each_cublas_handle_with_what_the_driver_had(record) -> None:
    seen = record.run(
        """
        import threading, torch
        a = torch.ones(8, 8, device="cuda", requires_grad=True)
        product = a @ a
        def serve():
            a @ a
        thread = threading.Thread(target=serve, name="worker")
        keep = threading.Event()
        thread.start()
        thread.join()
        """
    )
    main, worker = seen.observations("cublas-handle")
    assert (main["thread"], main["line"], main["source"]) == ("MainThread", 4, "product = a @ a")
    assert (worker["thread"], worker["line"], worker["function"]) == ("worker", 6, "serve")
    assert main["ok"]
    assert worker["ok"]
    handle = seen.recording.manifest.device.cublas_handle_bytes
    assert main["driver_free_bytes"] - main["driver_free_after_bytes"] == handle
    assert worker["driver_free_bytes"] < main["driver_free_after_bytes"]


def test_the_handle_that_fails(record) -> None:
    seen = record.run(
        """
        import torch
        a = torch.ones(8, 8, device="cuda")
        free, _ = torch.cuda.mem_get_info()
        cache = torch.empty(free - (1 << 20), dtype=torch.uint8, device="cuda")
        del cache
        a @ a
        """
    )
    manifest = seen.recording.manifest
    assert str(manifest.exit.kind) == "cublas"
    (failed,) = seen.observations("cublas-handle")
    assert (failed["ok"], failed["status"], failed["line"]) == (False, 3, 7)
    assert failed["driver_free_bytes"] <= 2 << 20


def test_casts_are_added_up_by_line(record) -> None:
    seen = record.run(
        """
        import torch
        x = torch.ones(1024, device="cuda")
        for _ in range(3):
            x.to(torch.bfloat16)
        torch.nn.Linear(16, 16).cuda().half()
        x.float()
        x.to("cpu").half()
        """
    )
    rows = [
        (o["line"], o["source"], o["target"], o["bytes"], o["count"])
        for o in seen.observations("cast")
    ]
    assert rows == [
        (5, "float32", "bfloat16", 3 * 2048, 3),
        (6, "float32", "float16", 2 * (16 * 16 + 16), 2),
    ]


def test_casts_are_counted_up_to_a_bound_and_the_guard_is_off_then(record) -> None:
    seen = record.run(
        """
        import torch
        x = torch.ones(2, device="cuda")
        watched = "half" in vars(torch.Tensor)
        for _ in range(1_500):
            x.half()
        print(watched, "half" in vars(torch.Tensor), x.half().dtype)
        """
    )
    assert seen.out == "True False torch.float16\n"
    (cast,) = seen.observations("cast")
    assert (cast["count"], cast["bytes"], cast["complete"]) == (1_000, 4_000, False)


def test_watched_functions_keep_their_names_and_torch_load_its_arguments(record) -> None:
    seen = record.run(
        """
        import io, torch
        print(torch.Tensor.resize_.__name__, torch.load.__name__, torch.Tensor.__setitem__.__name__)
        file = io.BytesIO()
        torch.save([torch.ones(2)], file)
        file.seek(0)
        print(torch.load(file, map_location="cpu", weights_only=True))
        with open("t.pt", "wb") as f:
            torch.save(torch.ones(1), f)
        with open("t.pt", "rb") as f:
            print(torch.load(f))
        """
    )
    assert seen.out == "resize_ load __setitem__\n[tensor([1., 1.])]\ntensor([1.])\n"
