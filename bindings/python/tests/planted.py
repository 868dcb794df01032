"""A CUDA device that is none: the library with a backend that says it is CUDA and computes on the CPU, and arrays that say they are
there. It shows what the package tells the library and other libraries. test_cuda.py runs on a GPU."""

from __future__ import annotations

import ctypes

import metal_marlin as mm
from metal_marlin import _abi

OPERANDS = ("a", "c", "bias", "expert_ids", "expert_scales")


def copied(struct, **fields):
    found = type(struct).from_buffer_copy(struct)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


class OnDevice:
    """A numpy array that says it is on a device. told: the streams that it was asked for."""

    def __init__(self, array, device=(2, 0)):
        self.array, self.device, self.told = array, device, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        self.told.append(options.pop("stream", None))
        return self.array.__dlpack__(**options)


class Planted:
    """library      whose contexts of CUDA are the CPU's, and whose pointers of the device are the host's
    natives      the stream of CUDA of each stream that was made
    calls        of each work: the function, the native stream or None, and the kinds of memory of its operands
    waited       the native streams that were waited for
    """

    def __init__(self):
        self.library = mm.Library()
        self.real = dict(self.library._functions)
        self.natives, self.calls, self.waited, self.by_handle = [], [], [], {}
        own = {name: getattr(self, name) for name in self.real if hasattr(self, name)}
        self.library._functions = {**self.real, **own}

    def context(self, index=0):
        return mm.Context(mm.Backend.CUDA, index, library=self.library)

    def marlin_context_create(self, desc, *rest):
        on_cpu = copied(desc._obj, backend=mm.Backend.CPU, device_index=0)
        return self.real["marlin_context_create"](ctypes.byref(on_cpu), *rest)

    def marlin_stream_create(self, context, desc, out, error):
        native = (desc._obj.native or 0) if desc._obj.kind == _abi.Native.CUDA_STREAM else None
        self.natives.append(native)
        own = copied(desc._obj, kind=_abi.Native.NONE, native=None)
        status = self.real["marlin_stream_create"](context, ctypes.byref(own), out, error)
        self.by_handle[out._obj.value] = native
        return status

    def marlin_stream_wait(self, stream, *rest):
        self.waited.append(self.by_handle[stream.value])
        return self.real["marlin_stream_wait"](stream, *rest)

    def marlin_gemm(self, stream, desc, error):
        return self.real["marlin_gemm"](stream, ctypes.byref(self._seen("gemm", stream, desc._obj)), error)

    def marlin_gemm_many(self, stream, descs, count, error):
        return self._many("gemm_many", stream, descs, count, error)

    def marlin_prepare(self, stream, descs, count, *rest):
        return self._many("prepare", stream, descs, count, *rest)

    def marlin_explain(self, desc, *rest):
        return self.real["marlin_explain"](ctypes.byref(self._seen("explain", None, desc._obj)), *rest)

    def marlin_weights_unpack(self, stream, weights, rows, first, out, error):
        self.calls.append(("unpack", self._native(stream), [each._obj.memory for each in (rows, out) if each]))
        rows, out = (each and ctypes.byref(copied(each._obj, memory=_abi.Memory.HOST)) for each in (rows, out))
        return self.real["marlin_weights_unpack"](stream, weights, rows, first, out, error)

    def _native(self, stream):
        return self.by_handle[stream.value] if stream else None

    def _seen(self, name, stream, desc):
        matrices = {each: getattr(desc, each) for each in OPERANDS if getattr(desc, each).data}
        self.calls.append((name, self._native(stream), [each.memory for each in matrices.values()]))
        moved = {
            each: copied(matrix, memory=_abi.Memory.HOST) for each, matrix in matrices.items() if matrix.memory == _abi.Memory.CUDA
        }
        return copied(desc, **moved)

    def _many(self, name, stream, descs, count, *rest):
        each = [ctypes.pointer(self._seen(name, stream, descs[i].contents)) for i in range(count)]
        array = (type(each[0]) * count)(*each)
        return self.real[f"marlin_{name}"](stream, array, count, *rest)
