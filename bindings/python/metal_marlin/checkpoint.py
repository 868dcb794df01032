"""Checkpoints: what is in them."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Iterator
from ctypes import byref
from typing import Any

from . import _abi, errors
from ._abi import DType, Format, GptqZeroF, Layout, Status
from ._library import Handle, Library, Owner, default_library, sized
from .operands import BYTES, shaped


@dataclasses.dataclass(frozen=True)
class LayerInfo:
    """What a layer is, in a file or packed.

    name        "" for weights that do not come from a file
    status      whether it would load; Status.OK
    n, k        rows and columns: out_features, in_features
    experts     1 for a plain layer
    group_size  elements of k that share a scale; k when one group spans the row
    format      Format.NONE: floats, which can be quantised on load
    layout      in the file; of packed weights: what their first part came in
    dtype       of the scales; of the values when format is NONE
    bytes       in the file, or on the device
    kept_share  the share of the squared norm that pruning kept; 1.0 when nothing was pruned
    zeros, additive_zeros, act_order, sparse_2_4, gate_up_interleaved   what is special about it
    """

    name: str
    status: Status
    n: int
    k: int
    experts: int
    group_size: int
    format: Format
    layout: Layout
    dtype: DType
    bytes: int
    kept_share: float
    zeros: bool
    additive_zeros: bool
    act_order: bool
    sparse_2_4: bool
    gate_up_interleaved: bool


def layer_info(raw: _abi.marlin_layer_info) -> LayerInfo:
    return LayerInfo(
        name=(raw.name or b"").decode(errors="surrogateescape"),
        status=Status(raw.status),
        n=raw.n,
        k=raw.k,
        experts=raw.experts,
        group_size=raw.group_size,
        format=Format(raw.format),
        layout=Layout(raw.layout),
        dtype=DType(raw.dtype),
        bytes=raw.bytes,
        kept_share=raw.kept_share,
        zeros=bool(raw.flags & _abi.MARLIN_LAYER_ZEROS),
        additive_zeros=bool(raw.flags & _abi.MARLIN_PACK_ADDITIVE_ZEROS),
        act_order=bool(raw.flags & _abi.MARLIN_LAYER_ACT_ORDER),
        sparse_2_4=bool(raw.flags & _abi.MARLIN_LAYER_SPARSE_2_4),
        gate_up_interleaved=bool(raw.flags & _abi.MARLIN_PACK_GATE_UP_INTERLEAVED),
    )


def encoded(name: str, what: str) -> bytes:
    """Names of files may hold bytes that are no UTF-8; none holds a NUL."""
    if "\0" in name:
        raise errors.argument(f"{what} has a NUL in it: {name!r}")
    return name.encode(errors="surrogateescape")


class Checkpoint(Handle):
    """An open .safetensors, .safetensors.index.json or .gguf file, or a folder that holds one. It is mapped and read lazily.

    layout       of quantised layers, taken on trust; AUTO: found from config.json, tensor names and dtypes
    gptq_zero_f  what a zero nibble 15 stands for, in all GPTQ v1 layers

    A file that another process shrinks in the meantime ends the reader (SIGBUS): replace files by renaming.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: Layout = Layout.AUTO,
        gptq_zero_f: GptqZeroF = GptqZeroF.AUTO,
        library: Library | None = None,
    ) -> None:
        desc = sized(_abi.marlin_open_desc, layout=layout, gptq_zero_f=gptq_zero_f)
        owner = Owner(library or default_library(), _abi.marlin_checkpoint())
        self._owner = owner.create("marlin_checkpoint_open", encoded(os.fspath(path), "the path"), byref(desc))

    def layers(self) -> Iterator[LayerInfo]:
        """The layers in file order. One that would not load is listed as well: its status says so."""
        owner = self._live()
        index = 0
        while True:
            info = sized(_abi.marlin_layer_info)
            try:
                owner.library.call("marlin_checkpoint_layer", owner.handle, index, byref(info))
            except errors.NotFoundError:
                return
            yield layer_info(info)
            index += 1

    def tensor(self, name: str) -> Any:
        """A copy of one stored tensor (a bias, a norm, a router) [rows, cols]: all dimensions but the last are rows.

        A numpy array; of a type that numpy does not have without ml_dtypes, Bits.
        """
        owner = self._live()
        matrix = _abi.marlin_matrix()
        owner.library.call("marlin_checkpoint_tensor", owner.handle, encoded(name, "the tensor's name"), byref(matrix))
        dtype = DType(matrix.dtype)
        if not matrix.data or dtype == DType.U4:
            raise errors.from_status(Status.UNSUPPORTED, f"{name} holds {dtype.name} [{matrix.rows}, {matrix.cols}], which numpy cannot")
        size = BYTES.get(dtype, 1)
        stride = max(matrix.row_stride, matrix.cols) * size
        # Row by row, because the file may have gaps between them; at any address.
        rows = [ctypes.string_at(matrix.data + matrix.offset_bytes + row * stride, matrix.cols * size) for row in range(matrix.rows)]
        return shaped(bytearray().join(rows), dtype, (matrix.rows, matrix.cols))
