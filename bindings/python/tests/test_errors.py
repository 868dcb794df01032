"""Whatever a caller hands over: an exception of Python that says what was expected, never a crash."""

from __future__ import annotations

import copy
import ctypes
import enum
import errno
import inspect
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import metal_marlin as mm
import numpy as np
import pytest
from conftest import DATA, DOWN, GPTQ, TOP
from metal_marlin import _abi, errors
from numpy.lib.stride_tricks import as_strided


def f32(*shape):
    return np.zeros(shape, np.float32)


class Capsule:
    """Speaks DLPack as it is told to."""

    def __init__(self, array=None, device=(1, 0), capsule=None):
        self._array, self._device, self._capsule = array, device, capsule

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, **options):
        return self._capsule if self._array is None else self._array.__dlpack__(**options)


class OlderCapsule(Capsule):
    """Of a library from before DLPack 1.0."""

    def __dlpack__(self):
        return self._array.__dlpack__()


def used_up():
    capsule = f32(8, 384).__dlpack__()
    np.from_dlpack(Capsule(capsule=capsule))
    return Capsule(capsule=capsule)


def read_only():
    array = f32(8, 96)
    array.flags.writeable = False
    return array


BAD_A = {
    "a list": (lambda: [[0.0] * 384], TypeError, "expected a numpy array"),
    "None": (lambda: None, TypeError, "NoneType"),
    "float64": (lambda: np.zeros((8, 384)), TypeError, r"float64 \(<f8\), expected one of float32, float16, bfloat16, or Bits$"),
    "another byte order": (lambda: np.zeros((8, 384), ">f4"), TypeError, ">f4"),
    "integers": (lambda: np.zeros((8, 384), np.int32), TypeError, "a has dtype int32, expected one of float32, float16, bfloat16, or Bits$"),
    "integers of another library": (lambda: Capsule(np.zeros((8, 384), np.int32)), TypeError, "a has dtype int32, expected one of float32"),
    "doubles of another library": (lambda: Capsule(np.zeros((8, 384))), TypeError, "a has dtype float64, expected one of float32"),
    "K too small": (lambda: f32(8, 383), mm.ShapeError, "383"),
    "no dimension": (lambda: np.zeros((), np.float32), mm.ArgumentError, "no dimension"),
    "columns apart": (lambda: f32(8, 768)[:, ::2], mm.ArgumentError, "make it contiguous"),
    "transposed": (lambda: f32(384, 8).T, mm.ArgumentError, "make it contiguous"),
    "backwards": (lambda: f32(8, 384)[::-1], mm.ArgumentError, "backwards"),
    "one row for all": (lambda: np.broadcast_to(f32(384), (8, 384)), mm.ArgumentError, "overlap"),
    "rows that overlap": (lambda: as_strided(f32(9, 384), (8, 384), (384, 4)), mm.ArgumentError, "overlap"),
    "rows at unequal distances": (lambda: f32(4, 4, 384)[:, :2], mm.ArgumentError, "equal distances"),
    "odd addresses": (lambda: np.frombuffer(bytearray(8 * 384 * 4 + 1), np.uint8)[1:].view("<f4").reshape(8, 384), mm.ArgumentError, "a"),
    "odd strides": (lambda: as_strided(f32(9, 384), (8, 384), (1537, 4)), mm.ArgumentError, "multiples of 4"),
    "uint16 that may be bfloat16": (lambda: np.zeros((8, 384), np.uint16), TypeError, "Bits"),
    "bits in too wide elements": (lambda: mm.Bits(f32(8, 384), mm.DType.BF16), TypeError, "cannot hold"),
    "another device": (lambda: Capsule(device=(2, 1)), mm.ArgumentError, "on CUDA device 1, expected host memory for a context of the CPU"),
    "an unknown device": (lambda: Capsule(device=(8, 3)), mm.ArgumentError, r"on device \(8, 3\) of DLPack, expected host memory"),
    "a capsule that is used up": (used_up, mm.ArgumentError, "still to be used"),
    "no capsule": (lambda: Capsule(capsule="capsule"), mm.ArgumentError, "no DLPack capsule"),
    "complex numbers": (lambda: Capsule(np.zeros((8, 384), np.complex64)), TypeError, "complex64"),
}
BAD_OUT = {
    "read-only": (read_only, mm.ArgumentError, "read-only"),
    "too few columns": (lambda: f32(8, 95), mm.ShapeError, "95"),
    "too few rows": (lambda: f32(7, 96), mm.ShapeError, r"\(8, 'N'\)"),
    "grouped otherwise": (lambda: f32(2, 4, 96), mm.ShapeError, "out"),
    "integers": (lambda: np.zeros((8, 96), np.int32), TypeError, "out has dtype int32, expected one of float32"),
}


@pytest.mark.parametrize("case", BAD_A)
def test_bad_activations(weights, case):
    make, kind, message = BAD_A[case]
    with pytest.raises(kind, match=message):
        mm.gemm(make(), weights)


@pytest.mark.parametrize("case", BAD_OUT)
def test_bad_results(weights, case):
    make, kind, message = BAD_OUT[case]
    with pytest.raises(kind, match=message):
        mm.gemm(f32(8, 384), weights, out=make())


def test_the_rest_of_a_product(weights):
    x, out = f32(8, 384), f32(8, 96)
    for options, kind in (
        ({"bias": f32(95)}, mm.ShapeError),
        ({"compute": mm.Compute(99)}, mm.ArgumentError),
        ({"compute": mm.Compute.FP8}, mm.UnsupportedError),
        ({"epilogue": mm.Epilogue(99)}, mm.ArgumentError),
        ({"accumulate": True, "out": None}, mm.ArgumentError),
    ):
        with pytest.raises(kind):
            mm.gemm(x, weights, **{"out": out, **options})
    both = f32(8, 480)
    with pytest.raises(mm.ArgumentError, match="overlap"):
        mm.gemm(both[:, :384], weights, out=both[:, 300:396])


def test_arguments_of_other_kinds(context, weights):
    """Refused at once, by name."""
    x = f32(8, 384)
    for attempt, message in (
        (lambda: mm.gemm(weights, x), "weights is an ndarray, expected a Weights: a and weights seem to be swapped"),
        (lambda: mm.gemm(x, x), "weights is an ndarray, expected a Weights$"),
        (lambda: mm.gemm(x, weights, stream=context), "stream is a Context, expected a Stream"),
        (lambda: mm.gemm(x, weights, compute="int8"), "compute is 'int8', expected a Compute, as Compute.INT8"),
        (lambda: mm.gemm(x, weights, epilogue="silu"), "epilogue is 'silu', expected an Epilogue, as Epilogue.SILU"),
        (lambda: mm.gemm(x, weights, expert_ids=np.zeros((8, 1))), "expert_ids has dtype float64 .*, expected int32"),
        (lambda: mm.gemm_many([weights]), "the product is a Weights, expected a Gemm"),
        (lambda: mm.Quantize("int4"), "format is 'int4', expected a Format, as Format.INT4"),
        (lambda: mm.Quantize(4), "format is 4, expected a Format, as Format.INT4"),
        (lambda: mm.Quantize(mm.Format.INT4, "32"), "group_size is '32', expected a number of elements"),
        (lambda: mm.Weights.quantize(context, x, mm.Format.INT4), "quantize is a Format, expected a Quantize"),
        (lambda: mm.Weights.quantize(x, context, mm.Quantize(mm.Format.INT4)), "context is an ndarray, expected a Context"),
        (lambda: mm.Weights.load(context, str(GPTQ), DOWN), "checkpoint is a str, expected a Checkpoint"),
        (lambda: mm.Weights.pack(context, x), "a part is an ndarray, expected a Part"),
        (lambda: mm.load_layers(context, str(GPTQ)), "checkpoint is a str, expected a Checkpoint"),
        (lambda: mm.Stream(x), "context is an ndarray, expected a Context"),
        (lambda: mm.Context("cpu"), "backend is 'cpu', expected a Backend, as Backend.CPU"),
        (lambda: mm.Context(threads="2"), "threads is '2': 'str' object cannot be interpreted as an integer"),
    ):
        with pytest.raises(TypeError, match=message):
            attempt()
    with pytest.raises(mm.ArgumentError, match="group_size is -1"):
        mm.Quantize(mm.Format.INT4, -1)


def arguments_of_a_kind(kinds):
    """Those of the package whose types are named so, as (owner, argument)."""
    for name in mm.__all__:
        owner = getattr(mm, name)
        methods = [getattr(owner, each) for each in vars(owner) if not each.startswith("_")] if isinstance(owner, type) else []
        called = [owner] if callable(owner) and owner not in RESULTS else []
        for each in called + [each for each in methods if inspect.isroutine(each)]:
            for argument in inspect.signature(each).parameters.values():
                if argument.annotation in kinds:
                    yield each.__qualname__, argument.name


# What the package makes itself.
RESULTS = (*(each for each in vars(mm).values() if isinstance(each, type) and issubclass(each, (BaseException, enum.Enum))),
           mm.Device, mm.LayerInfo, mm.Outcome)
CONSTANTS = {kind.__name__: kind for kind in vars(mm).values() if isinstance(kind, type) and issubclass(kind, enum.IntEnum)}


def test_a_number_is_no_constant(context, weights, gptq, tmp_path):
    """Quantize(4) means 4 bits to a person, and NVFP4 to the library. Whatever takes a constant refuses its number."""
    x = f32(8, 384)
    calls = {
        ("Bits", "dtype"): lambda value: mm.Bits(x, value),
        ("Checkpoint", "layout"): lambda value: mm.Checkpoint(GPTQ, value),
        ("Checkpoint", "gptq_zero_f"): lambda value: mm.Checkpoint(GPTQ, gptq_zero_f=value),
        ("Checkpoint.convert", "scheme"): lambda value: gptq.convert(tmp_path / "x.gguf", [DOWN], mm.Quantize(), scheme=value),
        ("Context", "backend"): mm.Context,
        ("Context.zeros", "dtype"): lambda value: context.zeros(3, value),
        ("Gemm", "compute"): lambda value: mm.Gemm(x, weights, compute=value).run(),
        ("Gemm", "epilogue"): lambda value: mm.Gemm(x, weights, epilogue=value).explain(),
        ("Linear", "compute"): lambda value: mm.Linear(weights, compute=value)(x),
        ("Linear", "epilogue"): lambda value: mm.Linear(weights, epilogue=value)(x),
        ("Part", "format"): lambda value: mm.Weights.pack(context, mm.Part(value, x)),
        ("Part", "layout"): lambda value: mm.Weights.pack(context, mm.Part(mm.Format.INT4, x, layout=value)),
        ("Part", "gptq_zero_f"): lambda value: mm.Weights.pack(context, mm.Part(mm.Format.INT4, x, gptq_zero_f=value)),
        ("Quantize", "format"): mm.Quantize,
        ("gemm", "compute"): lambda value: mm.gemm(x, weights, compute=value),
        ("gemm", "epilogue"): lambda value: mm.gemm(x, weights, epilogue=value),
        ("save", "backend"): lambda value: mm.save(context, gptq, tmp_path / "x.marlin", backend=value),
    }
    assert set(calls) == set(arguments_of_a_kind(CONSTANTS))
    for (owner, argument), call in calls.items():
        for value in (0, 1, 4, np.int64(1), True, 1.0, "int4"):
            with pytest.raises(TypeError, match=rf"{argument} is .*, expected an? \w+, as [A-Z]\w+\.[A-Z]"):
                call(value)


class Path:
    def __init__(self, name):
        self.name = name

    def __fspath__(self):
        return self.name


def test_names_of_files(context, gptq, tmp_path):
    """As Python's own functions take them: text, bytes, and what has a path."""
    name, library = str(GPTQ), mm._library.default_library().path
    target, floats = str(tmp_path / "out.marlin"), mm.Checkpoint(DATA / "float-bf16")
    layers, int4 = [info.name for info in floats.layers() if info.format == mm.Format.NONE], mm.Quantize(mm.Format.INT4)
    calls = {
        ("Checkpoint", "path"): (name, mm.Checkpoint),
        ("Checkpoint.convert", "path"): (target, lambda path: floats.convert(path, layers, int4, dry_run=True, skip_unfit=True)),
        ("Library", "path"): (library, mm.Library),
        ("save", "path"): (target, lambda path: mm.save(context, gptq, path, overwrite=True)),
    }
    assert set(calls) == set(arguments_of_a_kind({"PathName", "PathName | None"}))
    for (owner, argument), (path, call) in calls.items():
        for given in (path, os.fsencode(path), pathlib.Path(path), Path(path), Path(os.fsencode(path))):
            call(given)
        for given in (3, ["a"], Path(3)):
            with pytest.raises(TypeError, match=f"{argument} is an? .*, expected a str, bytes or an os.PathLike"):
                call(given)
    for call in (lambda: gptq.tensor(b"x"), lambda: mm.Weights.load(context, gptq, b"x"), lambda: mm.load_layers(context, gptq, [b"x"])):
        with pytest.raises(TypeError, match="name is a bytes, expected a str"):
            call()


def test_dlpack_of_any_age(weights):
    x = np.random.default_rng(5).standard_normal((8, 384)).astype(np.float32)
    for kind in (Capsule, OlderCapsule):
        out = f32(8, 96)
        mm.gemm(kind(x), weights, out=kind(out))
        np.testing.assert_array_equal(out, mm.gemm(x, weights))


PARTS = {
    "no scales for codes": (dict(values=np.zeros((2, 16), np.uint8)), TypeError),
    "scales of another shape": (dict(values=np.zeros((2, 16), np.uint8), scales=f32(3, 1)), mm.ShapeError),
    "group size": (dict(values=f32(2, 32), group_size=7), mm.UnsupportedError),
    "a negative group size": (dict(values=f32(2, 32), group_size=-1), mm.ArgumentError),
    "unknown format": (dict(values=f32(2, 32), format=mm.Format(99)), mm.ArgumentError),
    "no rows": (dict(values=f32(0, 32)), mm.ShapeError),
    "three non-zeros in a block": (dict(values=np.ones((2, 32), np.float32), obeys_2_4=True), mm.FormatError),
}


@pytest.mark.parametrize("case", PARTS)
def test_bad_parts(context, case):
    fields, kind = PARTS[case]
    with pytest.raises(kind):
        mm.Weights.pack(context, mm.Part(**{"format": mm.Format.INT4, **fields}))


def test_bad_loads(context, gptq, tmp_path):
    with pytest.raises(mm.FileError) as caught:
        mm.Checkpoint(tmp_path / "none.safetensors")
    assert caught.value.errno == errno.ENOENT and isinstance(caught.value, OSError)
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 64)
    for attempt, kind in (
        (lambda: mm.Checkpoint(tmp_path / "bad.safetensors"), mm.FormatError),
        (lambda: mm.Checkpoint("a\0b"), mm.ArgumentError),
        (lambda: mm.Weights.load(context, gptq, "no.such.layer"), mm.NotFoundError),
        (lambda: mm.Weights.load(context, gptq, []), mm.ArgumentError),
        (lambda: mm.Weights.load(context, gptq, DOWN, shards=[]), mm.ArgumentError),
        (lambda: mm.Weights.load(context, gptq, DOWN, shards=[mm.Shard((96, 0, 0))]), mm.ShapeError),
        (lambda: mm.Weights.pack(context), mm.ArgumentError),
        (lambda: gptq.tensor("no.such.tensor"), mm.NotFoundError),
        (lambda: mm.load_layers(context, gptq, ["no.such.layer"]), mm.NotFoundError),
        (lambda: mm.Context(mm.Backend.CUDA), mm.NoDeviceError),
        (lambda: mm.Context(mm.Backend(99)), mm.ArgumentError),
    ):
        with pytest.raises(kind):
            attempt()


def test_every_status_has_a_class_with_the_message():
    assert set(errors.CLASSES) == set(mm.Status) - {mm.Status.OK}
    for status, kind in errors.CLASSES.items():
        error = errors.from_status(status, "expected 1, found 2", 5)
        assert type(error) is kind and isinstance(error, mm.MarlinError)
        assert (error.status, error.message, error.native_code) == (status, "expected 1, found 2", 5)
        assert str(error) == f"{mm.Status(status).name}: expected 1, found 2"
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (type(again), str(again), again.native_code) == (kind, str(error), 5)
    assert type(errors.from_status(-1234, "of a newer library")) is mm.MarlinError


def compiled(tmp_path, source):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a library with")
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / "lib.so"], input=source, text=True, check=True)
    return tmp_path / "lib.so"


SIZE = ctypes.sizeof(_abi.marlin_api)
LIBRARIES = {
    "another library": ("int f(void) { return 0; }", "no libmetal-marlin"),
    "another major": ("void* marlin_get_api(unsigned major) { return 0; }", "does not serve the ABI of major 0"),
    "an older one": (
        f"static const unsigned table[{SIZE // 4}] = {{{SIZE - 8}}}; const void* marlin_get_api(unsigned major) {{ return table; }}",
        f"has {SIZE - 8} bytes",
    ),
    "one without its functions": (
        f"static const unsigned table[{SIZE // 4}] = {{{SIZE}}}; const void* marlin_get_api(unsigned major) {{ return table; }}",
        "marlin_device_get",
    ),
}


@pytest.mark.parametrize("case", LIBRARIES)
def test_wrong_libraries(tmp_path, case):
    source, message = LIBRARIES[case]
    with pytest.raises(mm.LibraryError, match=message):
        mm.Library(compiled(tmp_path, source))


def test_missing_libraries(tmp_path):
    (tmp_path / "text.so").write_text("no library")
    for path in (tmp_path / "none.so", tmp_path / "text.so"):
        with pytest.raises(mm.LibraryError) as caught:
            mm.Library(path)
        assert str(path) in str(caught.value) and isinstance(caught.value, ImportError)


def test_a_package_without_its_library_says_so(tmp_path):
    """The sources alone, on a system that has none installed."""
    shutil.copytree(TOP / "bindings" / "python" / "metal_marlin", tmp_path / "metal_marlin", ignore=shutil.ignore_patterns("*.so", "*.dylib"))
    program = "import metal_marlin as mm\ntry: mm.Context()\nexcept mm.LibraryError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, env={})
    assert "libmetal-marlin" in done.stdout or done.stdout == "", done.stderr
    assert done.returncode == 0, done.stderr


def test_two_libraries_at_once(tmp_path):
    """A second copy, with its own contexts."""
    copied = shutil.copy(mm._library.default_library().path, tmp_path / "copy.so")
    library = mm.Library(copied)
    own = mm.Context(library=library)
    with pytest.raises(mm.ArgumentError, match="another copy"):
        mm.Weights.load(own, mm.Checkpoint(GPTQ), DOWN)
    weights = mm.Weights.load(own, mm.Checkpoint(GPTQ, library=library), DOWN)
    with pytest.raises(mm.ArgumentError, match="another copy"):
        mm.gemm_many([mm.Gemm(f32(1, 384), weights), mm.Gemm(f32(1, 384), mm.Weights.load(mm.Context(), mm.Checkpoint(GPTQ), DOWN))])
    assert mm.gemm(f32(1, 384), weights).shape == (1, 96)
