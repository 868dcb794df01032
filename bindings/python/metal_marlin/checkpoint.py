"""Checkpoints: what is in them, and writing them again."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_char_p
from typing import Any

from . import _abi, errors
from ._abi import DType, Format, GptqZeroF, Layout, Scheme, Status
from ._library import Handle, Library, Owner, PathName, a, constant, default_library, expected, sized, text_of
from .context import Log, to_logging
from .conversion import Outcome, Team
from .operands import BYTES, norms_of, shaped
from .progress import Wanted, Watch, shown
from .quantize import Quantize, flags_of, group_size_of
from .values import Values

# Layers that a Checkpoint's repr counts at most.
MANY = 1000


@dataclasses.dataclass(frozen=True, repr=False)
class LayerInfo:
    """What a layer is, in a file or packed.

    name        "" for weights that do not come from a file
    status      whether it would load; Status.OK
    n, k        rows and columns: out_features, in_features
    experts     1 for a plain layer
    group_size  elements of k that share a scale; k when one group spans the row
    format      Format.NONE: floats, which can be quantized on load
    layout      in the file; of packed weights: what their first part came in
    dtype       of the scales; of the values when format is NONE
    bytes       in the file, or on the device
    kept_share  the share of the squared norm that pruning kept; 1.0 when nothing was pruned
    zeros, additive_zeros, act_order, sparse_2_4, gate_up_interleaved, two_level_scales   what is special about it
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
    two_level_scales: bool = False

    def __repr__(self) -> str:
        return f"LayerInfo({self.name!r}, {self.summary()})"

    def summary(self) -> str:
        """Shape and format in short, as "[96, 384], INT4, group_size=128"."""
        shape = [self.experts, self.n, self.k] if self.experts != 1 else [self.n, self.k]
        parts = [str(shape), f"{self.dtype.name} floats" if self.format == Format.NONE else self.format.name]
        if self.format != Format.NONE and self.dtype != DType(0):
            parts.append(f"group_size={self.group_size}")
        parts += [name for name in SPECIAL if getattr(self, name)]
        return ", ".join(parts + [self.status.name] * (self.status != Status.OK))


SPECIAL = ("zeros", "additive_zeros", "act_order", "sparse_2_4", "gate_up_interleaved", "two_level_scales")


def layer_info(raw: _abi.marlin_layer_info) -> LayerInfo:
    return LayerInfo(
        name=decoded(raw.name),
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
        two_level_scales=bool(raw.flags & _abi.MARLIN_PACK_TWO_LEVEL_SCALES),
        **special(raw.flags),
    )


def outcome(raw: _abi.marlin_convert_outcome) -> Outcome:
    return Outcome(
        name=decoded(raw.name),
        status=Status(raw.status),
        reason=decoded(raw.reason),
        n=raw.n,
        k=raw.k,
        experts=raw.experts,
        group_size=raw.group_size,
        source=Format(raw.from_),
        format=Format(raw.format),
        bytes_before=raw.bytes_before,
        bytes_after=raw.bytes_after,
        squared_error=raw.squared_error,
        squared_norm=raw.squared_norm,
        kept_norm=raw.kept_norm,
        exact=bool(raw.flags & _abi.MARLIN_LAYER_EXACT),
        **special(raw.flags),
    )


def special(flags: int) -> dict[str, bool]:
    """What is special about a layer."""
    return {
        "zeros": bool(flags & _abi.MARLIN_LAYER_ZEROS),
        "additive_zeros": bool(flags & _abi.MARLIN_PACK_ADDITIVE_ZEROS),
        "act_order": bool(flags & _abi.MARLIN_LAYER_ACT_ORDER),
        "sparse_2_4": bool(flags & _abi.MARLIN_LAYER_SPARSE_2_4),
        "gate_up_interleaved": bool(flags & _abi.MARLIN_PACK_GATE_UP_INTERLEAVED),
    }


def decoded(name: bytes | None) -> str:
    return (name or b"").decode(errors="surrogateescape")


def encoded(name: str, what: str) -> bytes:
    """Names of files may hold bytes that are no UTF-8; none holds a NUL."""
    if not isinstance(name, str):
        raise TypeError(f"{what} is {a(type(name))}, expected a str")
    if "\0" in name:
        raise errors.argument(f"{what} has a NUL in it: {name!r}")
    return name.encode(errors="surrogateescape")


def names_of(layers: Sequence[str]) -> Any:
    """The names of layers as the library takes them."""
    return (c_char_p * len(layers))(*(encoded(name, "the layer's name") for name in layers))


class Checkpoint(Handle):
    """An open .safetensors, .safetensors.index.json, .gguf or .marlin file, or a folder that holds one. It is mapped and read lazily.

    layout         of quantized layers, taken on trust; AUTO: found from config.json, tensor names and dtypes
    gptq_zero_f    what a zero nibble 15 stands for, in all GPTQ v1 layers
    outputs_first  the order of stacks of experts whose shapes and config leave it open: True for [experts, n, k], False for
                   [experts, k, n]; None: such stacks are not read
    config         members of config.json, which answer what the files leave open or say wrongly:
                   {"quantization_config": {"group_size": 64}}

    A file that another process shrinks in the meantime ends the reader (SIGBUS): replace files by renaming.
    """

    def __init__(
        self,
        path: PathName,
        layout: Layout = Layout.AUTO,
        gptq_zero_f: GptqZeroF = GptqZeroF.AUTO,
        library: Library | None = None,
        outputs_first: bool | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        constant(layout, Layout, "layout")
        constant(gptq_zero_f, GptqZeroF, "gptq_zero_f")
        if outputs_first not in (None, True, False):
            raise TypeError(f"outputs_first is {outputs_first!r}, expected True, False or None")
        flags = {None: 0, True: _abi.MARLIN_OPEN_OUTPUTS_FIRST, False: _abi.MARLIN_OPEN_INPUTS_FIRST}[outputs_first]
        desc = sized(_abi.marlin_open_desc, layout=layout, gptq_zero_f=gptq_zero_f, flags=flags)
        if config is not None:
            desc.config = encoded(json.dumps(config), "config")
        owner = Owner(library or default_library(), _abi.marlin_checkpoint())
        self._path, self._absolute = text_of(path), os.path.abspath(text_of(path))
        self._layout, self._gptq_zero_f, self._outputs_first = layout, gptq_zero_f, outputs_first
        self._owner = owner.create("marlin_checkpoint_open", encoded(self._path, "the path"), byref(desc))

    def __repr__(self) -> str:
        if self._owner is None:
            return f"Checkpoint({self._path!r}, closed)"
        seen = list(itertools.islice(self.layers(), MANY + 1))
        counts = collections.Counter(info.format.name if info.format != Format.NONE else "floats" for info in seen[:MANY])
        more = f"more than {MANY}" if len(seen) > MANY else str(len(seen))
        formats = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        return f"Checkpoint({self._path!r}, {more} layer{'s' * (len(seen) != 1)}{': ' if formats else ''}{formats})"

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

    @property
    def values(self) -> Values:
        """What the file says about the model: the key-values of a GGUF, or the members of config.json, inner ones by a path with dots."""
        return Values(self._live())

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
        # Row by row, because the file may have gaps between them; at any address. Empty rows may be more than any loop ends.
        rows = [ctypes.string_at(matrix.data + matrix.offset_bytes + row * stride, matrix.cols * size) for row in range(matrix.rows if matrix.cols else 0)]
        return shaped(bytearray().join(rows), dtype, (matrix.rows, matrix.cols))

    def convert(
        self,
        path: PathName,
        layers: Sequence[str],
        quantize: Quantize,
        *,
        scheme: Scheme = Scheme.AUTO,
        asymmetric: bool = False,
        column_norms: Sequence[Any] | None = None,
        types: Sequence[str] | None = None,
        shard_bytes: int = 0,
        skip_unfit: bool = False,
        overwrite: bool = False,
        dry_run: bool = False,
        threads: int = 0,
        log: Log = to_logging,
        progress: Wanted = None,
    ) -> list[Outcome]:
        """Writes the checkpoint again with these layers quantized, and tells what became of each; all other tensors are copied.

        path          a .gguf or .safetensors file in an existing folder, or a folder
        quantize      to a format of the scheme; Format.NONE where types says all, or where layers that are quantized already are
                      to keep every value
        scheme        how the files name and store the layers; AUTO: GGUF to a name in .gguf or from a GGUF, else compressed-tensors
        asymmetric    INT4 with a zero point a group
        column_norms  as in Weights.load(); without pruning they weigh the squared errors that scales_mse and types minimize
        types         GGUF: the type of each layer's blocks, as "Q4_K"
        shard_bytes   safetensors: at most so many bytes of tensors a file; 0: as many files as the input has
        skip_unfit    a layer that the scheme cannot hold stays as it is, and its outcome says why; else it is an error
        overwrite     replace files of the names that are written; else they are an error
        dry_run       plan and check, write nothing
        threads       0: as many as the process may run on; the result does not depend on it
        log           as in Context; it may raise, which stops the conversion
        progress      called with the done and all bytes (0: not known yet) and a layer's name; True: a bar. What it raises, and
                      Ctrl-C, stops the conversion

        Everything is written under other names and renamed at the end: what fails or is stopped leaves old files as they were.
        """
        names = list(layers)
        norms = norms_of(column_norms, len(names))
        expected(quantize, Quantize, "quantize")
        constant(scheme, Scheme, "scheme")
        flags = flags_of(quantize, "MARLIN_CONVERT_") | _abi.MARLIN_CONVERT_ASYMMETRIC * asymmetric
        flags |= _abi.MARLIN_CONVERT_SKIP_UNFIT * skip_unfit | _abi.MARLIN_CONVERT_OVERWRITE * overwrite
        desc = sized(
            _abi.marlin_convert_desc,
            flags=flags | _abi.MARLIN_CONVERT_DRY_RUN * dry_run,
            scheme=scheme,
            format=quantize.format,
            group_size=group_size_of(quantize.group_size),
            layer_count=len(names),
            layers=names_of(names),
            shard_bytes=shard_bytes,
        )
        if norms is not None:
            desc.column_norms = norms.matrices
        if types is not None:
            if len(types) != len(names):
                raise ValueError(f"types: expected one for each of {len(names)} layers, found {len(types)}")
            desc.types = names_of(types)
        owner, to, outcomes = self._live(), encoded(text_of(path), "the path"), list[Outcome]()
        with shown(progress) as told:
            watch = Watch(told)
            desc.progress = type(desc.progress)(lambda _, done, total, layer: watch.tell(done, total, decoded(layer)))
            desc.layer_done = type(desc.layer_done)(lambda _, raw: watch.guard(lambda: outcomes.append(outcome(raw.contents))))
            desc.log = type(desc.log)(lambda _, level, text: watch.guard(log, level, text.decode(errors="replace")))
            with Team(threads, watch) as team:
                desc.parallel_for = type(desc.parallel_for)(team.run)
                with watch.during():
                    owner.library.call("marlin_checkpoint_convert", owner.handle, to, byref(desc))
        return outcomes
