"""Small models that tests make: GGUF files of every architecture that the chat knows, with random weights or with planned answers."""

import gguf
import numpy as np
from gguf.quants import quantize

Q4_0, Q4_1, Q5_0, Q8_0, MXFP4, F32 = (getattr(gguf.GGMLQuantizationType, name) for name in ("Q4_0", "Q4_1", "Q5_0", "Q8_0", "MXFP4", "F32"))
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # tokenizer.ggml.token_type
BIAS, HEAD_NORMS, RESULT_NORMS, MIXTURES = ("qwen2", "gpt-oss"), ("qwen3", "qwen3moe", "gemma3"), ("gemma3",), ("qwen3moe", "gpt-oss")


def byte_names():
    """GPT-2's printable characters for all bytes, in the order of the bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


class Model:
    """A file that grows: add what a test needs, then write() it."""

    def __init__(self, path, architecture, seed=1, **keys):
        self.writer, self.architecture, self.random = gguf.GGUFWriter(path, architecture), architecture, np.random.default_rng(seed)
        self.shape = {"block_count": 2, "embedding_length": 64, "feed_forward_length": 96, "context_length": 512, "attention.head_count": 4,
                      "attention.head_count_kv": 2, "attention.key_length": 16, "attention.layer_norm_rms_epsilon": 1e-6, **keys}
        self.shape["attention.value_length"] = self.shape["attention.key_length"]
        for key, value in self.shape.items():
            add = {int: self.writer.add_uint32, float: self.writer.add_float32, str: self.writer.add_string}[type(value)]
            add(f"{architecture}.{key}", value)

    def byte_pairs(self, more=()):
        """Tokens 0 to 255 are the bytes; `more` are pairs of a name and a type. The only merge is of the bytes 0 and 1."""
        names = byte_names()
        tokens = [*((name, NORMAL) for name in names), *more, (names[0] + names[1], NORMAL)]
        self._tokens("gpt2", [name for name, _ in tokens], [kind for _, kind in tokens])
        self.writer.add_tokenizer_pre("qwen2")
        self.writer.add_token_merges([names[0] + " " + names[1]])

    def sentence_pieces(self, pieces, more=(), space_prefix=False, begin=True):
        """Tokens 0 to 2 are <unk>, <s> and </s>, the bytes follow. `pieces` are pairs of a name and a score."""
        tokens = [("<unk>", UNKNOWN, 0), ("<s>", CONTROL, 0), ("</s>", CONTROL, 0), *((f"<0x{byte:02X}>", BYTE, 0) for byte in range(256)),
                  *((name, NORMAL, score) for name, score in pieces), *((name, kind, 0) for name, kind in more)]
        names, types, scores = zip(*tokens)
        self._tokens("llama", list(names), list(types))
        self.writer.add_token_scores([float(score) for score in scores])
        self.writer.add_bos_token_id(1)
        self.writer.add_add_bos_token(begin)
        self.writer.add_add_space_prefix(space_prefix)

    def _tokens(self, kind, names, types):
        self.vocabulary = len(names)
        self.writer.add_tokenizer_model(kind)
        self.writer.add_token_list(names)
        self.writer.add_token_types(types)

    def layer(self, name, n, k, kind=Q8_0, values=None):
        if values is None:
            values = self.random.normal(size=(n, k)) / np.sqrt(k)
        self.writer.add_tensor(name + ".weight", quantize(values.astype(np.float32), kind), raw_dtype=kind)

    def floats(self, name, n, mean, spread):
        self.writer.add_tensor(name, (mean + spread * self.random.normal(size=n)).astype(np.float32))

    def random_weights(self, leave_out=(), own_head=False, router_rows=None):
        """q and k are in another format than v, and so are gate and up of every second layer."""
        get = self.shape.__getitem__
        width, ff, size = get("embedding_length"), get("feed_forward_length"), get("attention.key_length")
        queries, keys = get("attention.head_count") * size, get("attention.head_count_kv") * size
        self.layer("token_embd", self.vocabulary, width)
        self.floats("output_norm.weight", width, 1, 0.2)
        if own_head:
            self.layer("output", self.vocabulary, width)
        for index in range(get("block_count")):
            layers = {"attn_q": (queries, width, Q4_0), "attn_k": (keys, width, Q4_0), "attn_v": (keys, width, Q8_0),
                      "attn_output": (width, queries, Q5_0), "ffn_gate": (ff, width, Q4_1), "ffn_up": (ff, width, Q8_0 if index % 2 else Q4_1),
                      "ffn_down": (width, ff, Q8_0)}
            vectors = {"attn_norm.weight": width, "ffn_norm.weight": width}
            if self.architecture in BIAS:
                vectors |= {"attn_q.bias": queries, "attn_k.bias": keys, "attn_v.bias": keys}
            if self.architecture == "gpt-oss":
                del vectors["ffn_norm.weight"]
                vectors |= {"post_attention_norm.weight": width, "attn_output.bias": width, "attn_sinks.weight": get("attention.head_count")}
            if self.architecture in HEAD_NORMS:
                vectors |= {"attn_q_norm.weight": size, "attn_k_norm.weight": size}
            if self.architecture in RESULT_NORMS:
                vectors |= {"post_attention_norm.weight": width, "post_ffw_norm.weight": width}
            if self.architecture in MIXTURES:
                self.mixture(index, leave_out, router_rows)
                layers = {name: layer for name, layer in layers.items() if not name.startswith("ffn")}
            for name, (n, k, kind) in layers.items():
                self.layer(f"blk.{index}.{name}", n, k, kind)
            for name, n in vectors.items():
                if name not in leave_out:
                    self.floats(f"blk.{index}.{name}", n, *((0, 0.5) if name.endswith("bias") else (1, 1) if "sinks" in name else (1, 0.2)))

    def mixture(self, index, leave_out, router_rows):
        """The router's rows are zeros, pairs of opposite ones, and one more where the number of experts is even. As many as there are
        pairs have a positive logit. So if there are more pairs than a token has experts, nobody chooses the first expert, whose
        weights are large: a trace of them would show. With biases, the first expert has a low one. gate and up then give numbers that
        are cut off."""
        get = self.shape.__getitem__
        width, ff, experts = get("embedding_length"), get("expert_feed_forward_length"), get("expert_count")
        pairs = self.random.normal(size=((experts - 1) // 2, width)) * 2 / np.sqrt(width)
        last = self.random.normal(size=((experts - 1) % 2, width)) * 2 / np.sqrt(width)
        router = np.concatenate([np.zeros((1, width)), pairs, -pairs, last])
        biases = self.architecture == "gpt-oss"
        if biases and "ffn_gate_inp.bias" not in leave_out:
            self.floats(f"blk.{index}.ffn_gate_inp.bias", experts, [-30] + [0] * (experts - 1), 0.5)
        if "ffn_gate_inp.weight" not in leave_out:
            self.layer(f"blk.{index}.ffn_gate_inp", experts, width, F32, router[:router_rows])
        for name, n, k, kind in (("gate", ff, width, MXFP4), ("up", ff, width, Q4_0 if index % 2 else MXFP4), ("down", width, ff, Q4_1)):
            values = self.random.normal(size=(experts, n, k)) / np.sqrt(k)
            if biases:
                values *= 1 if name == "down" else 4
                if f"ffn_{name}_exps.bias" not in leave_out:
                    self.floats(f"blk.{index}.ffn_{name}_exps.bias", (experts, n), 0, 0.5)
            values[0] *= 1000 if len(pairs) > get("expert_used_count") else 1
            if f"ffn_{name}_exps.weight" not in leave_out:
                self.layer(f"blk.{index}.ffn_{name}_exps", n, k, kind, values)

    def planned_answers(self, follows):
        """Blocks add nothing, and the head looks up what `follows` the last token: {token: token}. An embedding is 1 at the token's place."""
        width, ff = self.shape["embedding_length"], self.shape["feed_forward_length"]
        size = self.shape["attention.key_length"]
        head = np.zeros((self.vocabulary, width))
        for token, following in follows.items():
            head[following, token] = 1
        self.layer("token_embd", self.vocabulary, width, values=np.eye(self.vocabulary, width))
        self.layer("output", self.vocabulary, width, values=head)
        self.floats("output_norm.weight", width, 1, 0)
        for name, n, k in (("attn_q", 4 * size, width), ("attn_k", 2 * size, width), ("attn_v", 2 * size, width), ("attn_output", width, 4 * size),
                           ("ffn_gate", ff, width), ("ffn_up", ff, width), ("ffn_down", width, ff)):
            self.layer("blk.0." + name, n, k, values=np.zeros((n, k)))
        for name in "attn_norm", "ffn_norm":
            self.floats(f"blk.0.{name}.weight", width, 1, 0)

    def write(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


GEMMA = {"block_count": 7, "attention.sliding_window": 8, "rope.freq_base": 1e6}
MIXTURE = {"embedding_length": 96, "attention.key_length": 32, "rope.freq_base": 1e6, "expert_feed_forward_length": 160}
OSS = {**MIXTURE, "block_count": 4, "expert_count": 6, "expert_used_count": 2, "attention.sliding_window": 8, "rope.freq_base": 150000.0,
       "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096}
MODELS = {
    "llama": {"rope.freq_base": 5e5},
    "llama with rotation factors": {"rope.freq_base": 5e5},
    "qwen2": {"embedding_length": 96, "attention.head_count": 6},
    "qwen3": {"attention.key_length": 32, "rope.freq_base": 1e6},
    "qwen3moe": {**MIXTURE, "expert_count": 8, "expert_used_count": 2},
    "qwen3moe with every expert": {**MIXTURE, "expert_count": 3, "expert_used_count": 3},
    "qwen3moe with one expert a token": {**MIXTURE, "expert_count": 11, "expert_used_count": 1},
    "gpt-oss": OSS,
    "gpt-oss without scaled positions": {**OSS, "rope.scaling.type": "none"},
    "gemma3": {"attention.key_length": 32, **GEMMA},
    "gemma3 with scaled positions": {**GEMMA, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
    "gemma3 with 62 layers": {**GEMMA, "block_count": 62, "attention.key_length": 32},  # as its 27B, which has its own scale of scores
}


def made(scratch, name, keys={}, more=(), **options):
    """more: names and shapes of further tensors."""
    path = scratch / (name.replace(" ", "-") + ".gguf")
    model = Model(path, name.split(" ")[0], **MODELS[name], **keys)
    if name.startswith("gemma3"):
        model.sentence_pieces([("\u2581", -1), ("t", -2), ("he", -3), ("\u2581the", -4), ("\u2581t", -5), ("h", -6), ("e", -7)])
    else:
        model.byte_pairs()
    model.random_weights(own_head=name.split(" ")[0] in ("llama", "gpt-oss"), **options)
    if name.endswith("rotation factors"):  # as Llama 3.1 has them: pairs that turn fast keep their speed
        model.writer.add_tensor("rope_freqs.weight", np.array([1, 1, 1, 1.5, 3, 8, 8, 8], np.float32))
    for tensor, shape in more:
        model.floats(tensor, shape, 0, 1)
    model.write()
    return str(path)
