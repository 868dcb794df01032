"""Mixtures of experts: a product of experts is the sum of plain products, weighted by scales."""

from __future__ import annotations

import metal_marlin as mm
import numpy as np
import pytest
from conftest import DATA

EXPERTS, TOKENS, TOP_K, N, K = 4, 3, 2, 10, 64
IDS = np.array([[2, 0], [2, 2], [3, 1]], np.int32)
SCALES = np.array([[0.5, 0.25], [1, -2], [0.125, 3]], np.float32)
RANDOM = np.random.default_rng(7)
FLOATS = RANDOM.standard_normal((EXPERTS, N, K)).astype(np.float32)
X = RANDOM.standard_normal((TOKENS, K)).astype(np.float32)
BIAS = RANDOM.standard_normal((EXPERTS, N)).astype(np.float32)


def part(values):
    return mm.Part(mm.Format.INT4, values)


@pytest.fixture(scope="module")
def mixture(context):
    return mm.Weights.pack(context, *map(part, FLOATS), experts=EXPERTS)


@pytest.fixture(scope="module")
def plain(context):
    """Each expert by itself."""
    return [mm.Weights.pack(context, part(values)) for values in FLOATS]


def routed(plain, bias=None):
    """float64 [tokens, top_k, N]: each token times each of its experts, by plain products."""
    rows = [[mm.gemm(X[t], plain[e], None if bias is None else bias[e]) for e in IDS[t]] for t in range(TOKENS)]
    return np.array(rows, np.float64)


def test_packed_as_one(mixture, plain):
    info = mixture.info()
    assert (info.experts, info.n, info.k) == (EXPERTS, N, K)
    assert (mixture.unpack() == np.concatenate([each.unpack() for each in plain])).all()
    assert (mixture.unpack(N * 3 + 4) == plain[3].unpack(4)).all()


def test_several_parts_an_expert(context, mixture):
    halves = [part(values[rows]) for values in FLOATS for rows in (slice(0, 4), slice(4, N))]
    assert (mm.Weights.pack(context, *halves, experts=EXPERTS).unpack() == mixture.unpack()).all()
    with pytest.raises(mm.MarlinError, match="part_count is 7, expected a multiple of expert_count = 4"):
        mm.Weights.pack(context, *halves[:7], experts=EXPERTS)
    for count in (-1, 2**32 + 4):
        with pytest.raises(mm.ArgumentError, match="experts is"):
            mm.Weights.pack(context, *halves, experts=count)


def test_loaded_as_one(context):
    file, layer = mm.Checkpoint(DATA / "float-bf16"), "encoder.layer.0.attention.self.query"
    half = 48
    rows = [mm.Shard((half * e, 0, 0), (half, 0, 0)) for e in range(2)]
    quantize = mm.Quantize(mm.Format.MXFP4)
    apart = [mm.Weights.load(context, file, layer, quantize, shards=[each]) for each in rows]
    as_one = mm.Weights.load(context, file, [layer, layer], quantize, shards=rows, experts=2)
    assert (as_one.info().experts, as_one.info().n) == (2, half)
    assert (as_one.unpack() == np.concatenate([each.unpack() for each in apart])).all()
    with pytest.raises(mm.ShapeError, match="expert_count = 2"):
        mm.Weights.load(context, file, layer, quantize, experts=2)


def test_routed_rows(mixture, plain):
    y = mm.gemm(X, mixture, expert_ids=IDS)
    assert y.shape == (TOKENS, TOP_K, N)
    np.testing.assert_allclose(y, routed(plain), rtol=1e-5, atol=1e-5)
    down = mm.gemm(np.repeat(X[:, None], TOP_K, 1), mixture, expert_ids=IDS)  # a row of its own for each expert of a token
    np.testing.assert_allclose(down, y, rtol=1e-5, atol=1e-5)


def test_scales_sum_the_products_of_a_token(mixture, plain):
    y = mm.gemm(X, mixture, expert_ids=IDS, expert_scales=SCALES)
    assert y.shape == (TOKENS, N)
    np.testing.assert_allclose(y, (routed(plain) * SCALES[..., None]).sum(1), rtol=1e-5, atol=1e-4)
    one = mm.gemm(X[0], mixture, expert_ids=IDS[0], expert_scales=SCALES[0])
    assert one.shape == (N,)
    np.testing.assert_allclose(one, y[0], rtol=1e-5, atol=1e-4)


def test_a_bias_for_each_expert(mixture, plain):
    y = mm.gemm(X, mixture, BIAS, expert_ids=IDS, expert_scales=SCALES.astype(np.float16))
    np.testing.assert_allclose(y, (routed(plain, BIAS) * SCALES[..., None]).sum(1), rtol=1e-5, atol=1e-4)


def test_on_a_stream_and_in_a_batch(context, mixture):
    product = mm.Gemm(X, mixture, expert_ids=IDS, expert_scales=SCALES)
    assert product.explain()["kernel"]
    with mm.Stream(context, scratch=np.empty(mm.prepare([product], TOKENS), np.uint8)) as stream:
        y = product.run(stream)
    for each in mm.gemm_many([product, product]):
        assert (each == y).all()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("a has shape", {"a": np.zeros((4, K), np.float32)}),
        ("a has shape", {"a": np.zeros((TOKENS * TOP_K, K), np.float32)}),
        ("out has shape", {"out": np.zeros((TOKENS, N), np.float32)}),
        ("out has shape", {"out": np.zeros((TOKENS, TOP_K, N), np.float32), "expert_scales": SCALES}),
        ("bias.rows is 2", {"bias": BIAS[:2]}),
    ],
)
def test_wrong_shapes(mixture, words, options):
    with pytest.raises(mm.ShapeError, match=words):
        mm.Gemm(**{"a": X, "weights": mixture, "expert_ids": IDS, **options}).run()


def test_wrong_types_and_what_is_missing(mixture, plain):
    with pytest.raises(TypeError, match="expert_ids has dtype int64, expected int32"):
        mm.gemm(X, mixture, expert_ids=IDS.astype(np.int64))
    with pytest.raises(mm.ArgumentError, match="expert_scales"):
        mm.gemm(X, plain[0], expert_scales=SCALES)
