"""Packed weights: loaded from checkpoints, packed from codes, quantized from floats."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Sequence
from ctypes import POINTER, byref, pointer
from typing import Any

import numpy as np

from . import _abi, _dlpack, codes, errors
from ._abi import Backend, DType, Format, GptqZeroF, Layout
from ._library import Handle, Owner, PathName, constant, expected, sized, text_of
from .checkpoint import Checkpoint, LayerInfo, encoded, layer_info, names_of
from .context import Context, place_on, shared_context
from .operands import ALL, BYTES, FLOATS, INDICES, Bits, Operand, new_like, norms_of, numpy_type, operand
from .progress import Wanted, Watch, shown
from .quantize import NOT_QUANTIZED, Quantize, flags_of, group_size_of
from .source import Shard, Source, check_of
from .stream import Stream, number_of, submit


@dataclasses.dataclass
class Part:
    """One matrix W[n, k] to be packed: codes with their scales, or floats that are quantized. Arrays are read during pack() only.

    format              what a weight is worth
    values              floats [n, k], or codes in `layout`: uint8 [n, ceil(k / 2)] for ROWS, int8 [n, k] for INT8
    scales              None: values are floats. ROWS: [n, ceil(k / group_size)]
    zeros               zero points, uint8 0..15; floats with additive_zeros
    group_size          0: the format's own (32, NVFP4 16); k or more: the whole row
    n, k                None: the shape of values; codes need k where the layout does not tell it
    group_index         int32 [k]: the group of each k (act-order)
    sparse_meta         2:4: values hold what is kept, and this says where: uint8 masks or int16 nibbles
    tensor_scale        one float; with divide_scale it divides
    column_norms        float32 [k] >= 0, with prune_2_4: prunes by |w| * norm
    codebook            float32 [16], with Format.CODEBOOK4: the value of each code in units of its scale
    additive_zeros      q * s + zero
    prune_2_4           keep the two largest of every 4 along k
    obeys_2_4           dense values obey 2:4: store them sparse
    gate_up_interleaved rows alternate gate, up
    scales_mse          quantizing: the scales of least squared error
    two_level_scales    with Layout.GGUF: values are blocks of this format's K-quant (IQ4: IQ4_XS)
    gptq_zero_f         what a zero nibble 15 stands for, with Layout.GPTQ_V1
    """

    format: Format
    values: Any
    scales: Any = None
    zeros: Any = None
    group_size: int = 0
    n: int | None = None
    k: int | None = None
    layout: Layout = Layout.AUTO
    group_index: Any = None
    sparse_meta: Any = None
    tensor_scale: float | None = None
    column_norms: Any = None
    codebook: Any = None
    additive_zeros: bool = False
    divide_scale: bool = False
    prune_2_4: bool = False
    obeys_2_4: bool = False
    gate_up_interleaved: bool = False
    scales_mse: bool = False
    two_level_scales: bool = False
    gptq_zero_f: GptqZeroF = GptqZeroF.AUTO

    def desc(self, keeps: list[Operand]) -> _abi.marlin_pack_desc:
        """As the library takes it; `keeps` gets what has to live during the call."""
        constant(self.format, Format, "format")
        constant(self.layout, Layout, "layout")
        constant(self.gptq_zero_f, GptqZeroF, "gptq_zero_f")
        are_floats = self.scales is None and self.layout != Layout.GGUF
        values = operand(self.values, "values", FLOATS if are_floats else ALL)
        keeps.append(values)
        k = self.k if self.k is not None else values.cols * (2 if self._two_a_byte(values) else 1)

        def optional(array: Any, name: str) -> _abi.marlin_matrix:
            if array is None:
                return _abi.marlin_matrix()
            keeps.append(operand(array, name))
            return keeps[-1].matrix()

        scale = None if self.tensor_scale is None else np.array([self.tensor_scale], np.float32)
        return sized(
            _abi.marlin_pack_desc,
            format=self.format,
            group_size=group_size_of(self.group_size),
            layout=self.layout,
            n=self.n if self.n is not None else values.rows,
            k=k,
            values=values.matrix(),
            scales=optional(self.scales, "scales"),
            zeros=optional(self.zeros, "zeros"),
            sparse_meta=optional(self.sparse_meta, "sparse_meta"),
            group_index=optional(self.group_index, "group_index"),
            tensor_scale=optional(scale, "tensor_scale"),
            column_norms=optional(self.column_norms, "column_norms"),
            codebook=optional(self.codebook, "codebook"),
            flags=flags_of(self, "MARLIN_PACK_"),
            gptq_zero_f=self.gptq_zero_f,
        )

    def _two_a_byte(self, values: Operand) -> bool:
        return self.scales is not None and values.dtype == DType.U8 and self.format in codes.FOUR_BITS


@dataclasses.dataclass
class Load:
    """What one Weights.load() loads; its arguments of the same names say more. save() takes a list of them."""

    layers: str | Sequence[str]
    quantize: Quantize = NOT_QUANTIZED
    shards: Sequence[Shard] | None = None
    column_norms: Sequence[Any] | None = None
    experts: int = 1

    def names(self) -> list[str]:
        return [self.layers] if isinstance(self.layers, (str, bytes)) else list(self.layers)

    def desc(self) -> tuple[_abi.marlin_load_desc, Any]:
        """As the library takes it, and what has to live during the call."""
        names = self.names()
        if self.shards is not None and len(self.shards) != len(names):
            raise errors.argument(f"shards are one a layer: expected {len(names)}, found {len(self.shards)}")
        norms = norms_of(self.column_norms, len(names))
        expected(self.quantize, Quantize, "quantize")
        desc = sized(
            _abi.marlin_load_desc,
            flags=flags_of(self.quantize, "MARLIN_LOAD_"),
            layers=names_of(names),
            layer_count=len(names),
            expert_count=experts_of(self.experts),
            format=self.quantize.format,
            group_size=group_size_of(self.quantize.group_size),
        )
        if self.shards is not None:
            shards = (_abi.marlin_shard(first=each.first, count=each.count) for each in self.shards)
            desc.shards = (_abi.marlin_shard * len(names))(*shards)
        if norms is not None:
            desc.column_norms = norms.matrices
        return desc, norms


def experts_of(count: int) -> int:
    if not 0 <= count < 2**32:
        raise errors.argument(f"experts is {count}, expected 0 to {2**32 - 1}")
    return count


class Weights(Handle):
    """Packed weights on a device: immutable, shared by any number of threads. They need no checkpoint; those of a
    .marlin file use its bytes in place.

    Made by load(), pack() and quantize(); arrays given to these are read during the call only.
    """

    def __init__(self, owner: Owner, source: Source | None = None) -> None:
        self._owner = owner
        self._source = source

    def __deepcopy__(self, _: object) -> Weights:
        return self

    def __repr__(self) -> str:
        if self._owner is None:
            return "Weights(closed)"
        info = self.info()
        return f"Weights({info.summary()}, {info.bytes} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        """What saved() gives is pickled; the process that reads it packs it again."""
        within = self.context._live()._keeps
        return _restored, (self.context.backend, within.device_index, self.info().experts, self.saved())

    @property
    def context(self) -> Context:
        """The context that they were packed in."""
        found = Context.__new__(Context)
        found._owner = self._live()._keeps
        return found

    @classmethod
    def load(
        cls,
        context: Context,
        checkpoint: Checkpoint,
        layers: str | Sequence[str],
        quantize: Quantize = NOT_QUANTIZED,
        *,
        shards: Sequence[Shard] | None = None,
        column_norms: Sequence[Any] | None = None,
        experts: int = 1,
        progress: Wanted = None,
    ) -> Weights:
        """Layers of a checkpoint, several concatenated along N.

        quantize      for layers of floats, which are an error without a format
        shards        one a layer: parts of them; None: everything, of a layer with experts all of them
        column_norms  with prune_2_4, one a layer, or None: float32 [K] of the whole layer; prunes by |w| * norm
        experts       above 1: the layers are of that many experts, first those of expert 0, then as many of expert 1, and so on
        progress      called with the done and all elements of W and the first layer's name; True: a bar. What it raises, and
                      Ctrl-C, stops the load
        """
        load = Load(layers, quantize, shards, column_norms, experts)
        names = load.names()
        desc: _abi.marlin_load_desc
        desc, _keeps = load.desc()
        within = expected(context, Context, "context")._live()
        file = expected(checkpoint, Checkpoint, "checkpoint")._live(within.library)
        owner = Owner(within.library, _abi.marlin_weights(), keeps=within)
        with shown(progress) as told:
            watch = Watch(told)
            desc.progress = type(desc.progress)(lambda _, done, total: watch.tell(done, total, names[0]))
            with watch.during():
                owner.create("marlin_weights_load", within.handle, file.handle, byref(desc))
        if column_norms is not None:  # they are no part of a file
            return cls(owner)
        some = None if shards is None else tuple(shards)
        where = checkpoint._absolute, checkpoint._layout, checkpoint._gptq_zero_f
        source = Source(*where, tuple(names), quantize, some, experts, checkpoint._outputs_first)
        return cls(owner, source)

    @classmethod
    def pack(cls, context: Context, *parts: Part, experts: int = 1) -> Weights:
        """Parts, concatenated along N, as one. They must agree in k, format, group size and kinds of scales and zeros.

        experts  the parts are of that many experts: first all of expert 0, then as many with the same n of expert 1, and so on
        """
        within = expected(context, Context, "context")._live()
        keeps: list[Operand] = []
        descs = [expected(part, Part, "a part").desc(keeps) for part in parts]
        array = (POINTER(_abi.marlin_pack_desc) * len(descs))(*(pointer(desc) for desc in descs))
        owner = Owner(within.library, _abi.marlin_weights(), keeps=within)
        return cls(owner.create("marlin_weights_pack", within.handle, array, len(descs), experts_of(experts)))

    @classmethod
    def quantize(cls, context: Context, values: Any, quantize: Quantize, column_norms: Any = None) -> Weights:
        """Floats [N, K]: float32, float16 or bfloat16. column_norms: float32 [K], with prune_2_4: prunes by |w| * norm."""
        expected(quantize, Quantize, "quantize")
        options = {field.name: getattr(quantize, field.name) for field in dataclasses.fields(quantize)}
        return cls.pack(context, Part(values=values, column_norms=column_norms, **options))

    def info(self) -> LayerInfo:
        """Shape, format and size. The name is "" unless they were loaded; then it is the first layer's."""
        owner = self._live()
        info = sized(_abi.marlin_layer_info)
        owner.library.call("marlin_weights_info", owner.handle, byref(info))
        return layer_info(info)

    def parts(self) -> list[Part]:
        """Their codes and scales in host memory, one part an expert: what pack() makes of them decodes to the same, bit for bit.

        For integers of 2 to 8 bits, with a zero point a group or symmetric, for FP4, MXFP4 and NVFP4, for 2:4 and floats, and for all of
        a GGUF in a context of the CPU. Other weights are an UnsupportedError: those with act-order, additive zeros, or of FP8, NF4 or a
        codebook. Products are the same, too, unless the scales are float32, as those of weights above 65504 are: then the last bit of
        a result may differ.
        """
        info = self.info()
        with contextlib.suppress(errors.UnsupportedError):
            if codes.block_bytes(info) and not info.sparse_2_4:
                return [self._blocks(info, expert) for expert in range(info.experts)]
        why = codes.why_not(info)
        if why:
            raise codes.lost(why)
        return [self._part(info, expert) for expert in range(info.experts)]

    def saved(self, floats: bool = True) -> list[Part] | bytes:
        """What other weights of the same values can be made of, in another process or another context: parts(). Of weights that parts()
        is not for, a copy of their layers in the safetensors file that they were loaded from, which has to be there now; of those that
        come from no such file, what they decode to, as FLOAT32, which takes more memory: the logger "metal_marlin" warns.

        floats  False: an UnsupportedError instead of FLOAT32
        """
        try:
            return self.parts()
        except errors.UnsupportedError as error:
            info = self.info()
            if self._source is not None:
                with contextlib.suppress(errors.UnsupportedError):
                    if info.layout == Layout.GGUF:  # whose blocks only the CPU gives back
                        return Weights._of(shared_context(Backend.CPU), self._source).parts()
                    return self._source.copy(self)
            if not floats:
                raise errors.from_status(error.status, f"{error.message}, and they come from no safetensors file") from None
            values = self.unpack()
            what = f"{info.summary()}: {error.message}, and they come from no safetensors file: they are saved as FLOAT32"
            logging.getLogger("metal_marlin").warning("%s", what)
            rows = (values[expert * info.n : (expert + 1) * info.n] for expert in range(info.experts))
            return [Part(Format.FLOAT32, each, gate_up_interleaved=info.gate_up_interleaved) for each in rows]

    @classmethod
    def restore(cls, context: Context, saved: list[Part] | bytes, experts: int = 1) -> Weights:
        """Weights of what saved() gave. Of a copy of a file, a temporary folder keeps it as long as they live."""
        if isinstance(saved, list):
            return cls.pack(context, *saved, experts=experts)
        source, check = Source.of_copy(saved)
        found = cls._of(context, source)
        if check != check_of(found):
            what = f"{', '.join(source.layers)} decodes to other values than when it was loaded"
            raise errors.from_status(_abi.Status.FORMAT, f"the saved copy of {what}: its file had changed")
        return found

    @classmethod
    def _of(cls, context: Context, source: Source) -> Weights:
        file = Checkpoint(source.path, source.layout, source.gptq_zero_f, context._live().library, source.outputs_first)
        found = cls.load(context, file, source.layers, source.quantize, shards=source.shards, experts=source.experts)
        found._source = source
        return found

    def _blocks(self, info: LayerInfo, expert: int) -> Part:
        out = np.empty((info.n, codes.block_bytes(info)), np.uint8)
        special = {name: getattr(info, name) for name in ("additive_zeros", "gate_up_interleaved", "two_level_scales")}
        return Part(info.format, self.unpack(expert * info.n, out=out), n=info.n, k=info.k, layout=Layout.GGUF, **special)

    def _part(self, info: LayerInfo, expert: int) -> Part:
        special: dict[str, Any] = {"obeys_2_4": info.sparse_2_4, "gate_up_interleaved": info.gate_up_interleaved}
        dtype = codes.FLOATS.get(info.format, DType.F32)
        kind = numpy_type(dtype)
        out: Any = np.empty((info.n, info.k), kind or f"u{BYTES[dtype]}")
        values = self.unpack(expert * info.n, out=out if kind is not None else Bits(out, dtype))
        if info.format in codes.FLOATS:
            return Part(info.format, values, **special)
        found = codes.find(values, info)
        special |= {"n": info.n, "k": info.k, "group_size": info.group_size, "tensor_scale": found.tensor_scale}
        return Part(info.format, found.values, found.scales, found.zeros, **special)

    def unpack(self, first_row: int = 0, rows: int | None = None, out: Any = None, stream: Stream | None = None) -> Any:
        """Decodes rows, bit-exactly, to [T, K] in the file's order of K: `rows` of them from first_row on, None: all that follow.
        Those of expert e begin at row e N.

        out     float32, float16 or bfloat16 [T, K], which says T, also on the CUDA device of the weights; None: a new float32 numpy
                array. uint8 [T, bytes of a row], on the CPU: the rows as GGUF's blocks
        stream  None: done on return
        """
        if out is None:
            info = self.info()
            out = np.empty((rows if rows is not None else max(info.n * info.experts - first_row, 0), info.k), np.float32)
        return self._unpack(None, first_row, out, stream)

    def unpack_rows(self, ids: Any, out: Any = None, stream: Stream | None = None) -> Any:
        """Decodes the rows of these numbers, an embedding: ids are integers [...], out is [..., K], as in unpack(), and None gives
        a tensor for a tensor of torch.

        With `out` on a CUDA device, ids are int32 there, contiguous, and an id that is no row gives NaN.
        """
        if hasattr(ids, "__dlpack_device__") and _dlpack.device_of(ids).type not in _dlpack.HOST:
            return self._unpack_listed(ids, out, stream)
        given = np.asarray(ids)
        numbers = given.astype(np.int32).reshape(-1, 1)
        if given.dtype.kind not in "iu" or (numbers.reshape(given.shape) != given).any():
            raise errors.argument(f"ids have dtype {given.dtype} and may be too large, expected row numbers inside int32")
        if out is None:
            out = new_like(ids, (*given.shape, self.info().k), DType.F32)
        return self._unpack(operand(numbers, "ids"), 0, out, stream)

    def _unpack_listed(self, ids: Any, out: Any, stream: Stream | None) -> Any:
        found = operand(ids, "ids", INDICES, place_on(self._live()._keeps, number_of(stream)))
        if out is None:
            out = new_like(ids, (*found.shape, self.info().k), DType.F32)
            if isinstance(out, np.ndarray):
                raise errors.argument(f"ids are {found.device}, and out is not given: expected an array on that device")
        if found.matrix().row_stride not in (0, found.cols):
            raise errors.argument(f"ids have strides {found.strides}, expected contiguous numbers")
        one_each = dataclasses.replace(found, shape=(found.rows * found.cols, 1), strides=(1, 1))
        return self._unpack(one_each, 0, out, stream)

    def _unpack(self, ids: Operand | None, first_row: int, out: Any, stream: Stream | None) -> Any:
        owner = self._live()
        to = operand(out, "out", (*FLOATS, DType.U8), place_on(owner._keeps, number_of(stream)))
        operands = [to] if ids is None else [to, ids]
        rows = None if ids is None else byref(ids.matrix())
        matrix = byref(to.matrix(written=True, library=owner.library))
        uses = (owner, operands)
        submit(stream, owner._keeps, operands, uses, "marlin_weights_unpack", owner.handle, rows, first_row, matrix)
        return out


def save(
    context: Context,
    checkpoint: Checkpoint,
    path: PathName,
    loads: Sequence[Load] | None = None,
    *,
    rank: int = 0,
    ranks: int = 1,
    backend: Backend = Backend.AUTO,
    overwrite: bool = False,
) -> None:
    """Writes a packed container (.marlin): packed layers, which Weights.load() then uses in place, with all other tensors and the
    key-values of the checkpoint.

    context     its threads pack, on the host
    loads       one layer of the container each, named by its layers with "+" between them; None: every layer that loads, alone
    rank, ranks  which of how many shards these loads are; the container's values "marlin.rank" and "marlin.ranks" tell it
    backend     whose devices the file is for; this machine needs no such device; AUTO: that of the context
    overwrite   replace a file that is there; else it is an error
    """
    if not 0 <= rank < ranks < 2**32:
        raise errors.argument(f"rank is {rank} of {ranks}, expected 0 to ranks - 1")
    constant(backend, Backend, "backend")
    made = [expected(load, Load, "a load").desc() for load in loads or ()]
    desc = sized(
        _abi.marlin_save_desc,
        flags=_abi.MARLIN_SAVE_OVERWRITE * overwrite,
        load_count=len(made),
        rank=rank,
        rank_count=ranks,
        backend=backend,
    )
    if made:
        desc.loads = (POINTER(_abi.marlin_load_desc) * len(made))(*(pointer(each) for each, _ in made))
    within = expected(context, Context, "context")._live()
    file = expected(checkpoint, Checkpoint, "checkpoint")._live(within.library)
    within.library.call("marlin_checkpoint_save", within.handle, file.handle, encoded(text_of(path), "the path"), byref(desc))


def _restored(backend: Backend, device_index: int, experts: int, saved: list[Part] | bytes) -> Weights:
    return Weights.restore(shared_context(backend, device_index), saved, experts)


def load_layers(
    context: Context,
    checkpoint: Checkpoint,
    layers: Sequence[str] | None = None,
    quantize: Quantize = NOT_QUANTIZED,
    progress: Wanted = None,
) -> dict[str, Weights]:
    """Each of these layers on its own; None: every layer that would load. Progress counts bytes of the file."""
    expected(quantize, Quantize, "quantize")
    infos = {info.name: info for info in expected(checkpoint, Checkpoint, "checkpoint").layers()}
    names = layers
    if names is None:
        quantized = (name for name, info in infos.items() if info.format != Format.NONE or quantize.format != Format.NONE)
        names = [name for name in quantized if infos[name].status == _abi.Status.OK and infos[name].experts == 1]
    sizes = [infos[name].bytes if name in infos else 0 for name in names]
    loaded: dict[str, Weights] = {}
    with shown(progress) as told:
        for i, name in enumerate(names):
            before = sum(sizes[:i])

            def tell(done: int, total: int, layer: str, before: int = before, size: int = sizes[i]) -> None:
                if told is not None:
                    told(before + size * done // total, sum(sizes), layer)

            loaded[name] = Weights.load(context, checkpoint, name, quantize, progress=tell)
    return loaded
