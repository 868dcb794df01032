"""A decoder in float64, from the definitions and the GGUF's own numbers: what the chat's answers are checked against. It knows the
architectures llama, qwen2, qwen3, qwen3moe, gemma3 and gpt-oss.

It shares no code with the chat, keeps no cache and rounds nothing: each text runs whole, so that every position attends to keys
and values in float64. The texts of one call go through the layers together, and each layer's weights are decoded once.
"""

import gguf
import numpy as np
from gguf.quants import dequantize

LOCAL_PERIOD = {"gemma3": 6, "gpt-oss": 2}  # of so many layers, only the last attends to everything
LOCAL_BASE = 10000.0                        # Gemma 3


class Decoder:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.architecture = reader.fields["general.architecture"].contents()
        found = lambda key: reader.fields.get(f"{self.architecture}.{key}")
        number = lambda key, otherwise=None: found(key).contents() if found(key) else otherwise
        self.layers, self.heads = number("block_count"), number("attention.head_count")
        self.key_value_heads = number("attention.head_count_kv", self.heads)
        self.base, self.epsilon = number("rope.freq_base", 10000.0), number("attention.layer_norm_rms_epsilon")
        self.factor = 1.0 if number("rope.scaling.type") == "none" else number("rope.scaling.factor", 1.0)
        self.window = number("attention.sliding_window", 0)
        self.gemma, self.oss = self.architecture == "gemma3", self.architecture == "gpt-oss"
        self.yarn_context = number("rope.scaling.original_context_length") if number("rope.scaling.type") == "yarn" else None
        self.experts, self.experts_used = number("expert_count", 0), number("expert_used_count", 0)
        self.chosen, self.margin = {}, np.inf  # by layer: how many tokens each expert had; how clearly experts were chosen
        # Gemma 3's 27B, the one with 62 layers, divides scores by another root than that of a head's size.
        self.score_divisor = number("embedding_length") / self.heads if self.gemma and self.layers == 62 else None

    def tensor(self, name):
        tensor = self.tensors[name]
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

    def weight(self, name):
        return self.tensor(name + ".weight")

    def hidden(self, texts):
        """Lists of tokens to float64 [tokens of all, width]: what the head is multiplied by."""
        tokens = np.concatenate(texts)
        ends = np.cumsum([len(text) for text in texts])
        x = self.embedding(tokens)
        for layer in range(self.layers):
            weight = lambda name: self.weight(f"blk.{layer}.{name}")
            h = self.norm(x, weight("attn_norm"))
            q, k, v = (h @ weight(f"attn_{name}").T for name in "qkv")
            if self.architecture in ("qwen2", "gpt-oss"):
                q, k, v = (part + self.tensor(f"blk.{layer}.attn_{name}.bias") for part, name in zip((q, k, v), "qkv"))
            attended = [self.attention(layer, *(part[end - len(text):end] for part in (q, k, v))) for text, end in zip(texts, ends)]
            result = np.concatenate(attended) @ weight("attn_output").T + (self.tensor(f"blk.{layer}.attn_output.bias") if self.oss else 0)
            x = x + (self.norm(result, weight("post_attention_norm")) if self.gemma else result)
            h = self.norm(x, weight("post_attention_norm" if self.oss else "ffn_norm"))
            result = self.mixture(layer, h) if self.experts else self.mlp(h, *(weight("ffn_" + name) for name in ("gate", "up", "down")))
            x = x + (self.norm(result, weight("post_ffw_norm")) if self.gemma else result)
        return self.norm(x, self.weight("output_norm"))

    def mlp(self, h, gate, up, down):
        return (self.activated(h @ gate.T) * (h @ up.T)) @ down.T

    def oss_mlp(self, h, gate, up, down, gate_bias, up_bias, down_bias):
        gate = np.minimum(h @ gate.T + gate_bias, 7)
        up = np.clip(h @ up.T + up_bias, -7, 7)
        return (gate / (1 + np.exp(-1.702 * gate)) * (up + 1)) @ down.T + down_bias

    def mixture(self, layer, h):
        """Each token goes through the experts that its router finds most probable; their probabilities count as if there were no others."""
        logits = h @ self.weight(f"blk.{layer}.ffn_gate_inp").T + (self.tensor(f"blk.{layer}.ffn_gate_inp.bias") if self.oss else 0)
        probability = np.exp(logits - logits.max(axis=1, keepdims=True))
        probability /= probability.sum(axis=1, keepdims=True)
        by_rank = np.sort(logits, axis=1)[:, ::-1]
        least = by_rank[:, self.experts_used - 1]  # of those that are chosen
        if self.experts_used < self.experts:
            self.margin = min(self.margin, (least - by_rank[:, self.experts_used]).min())
        share = np.where(logits >= least[:, None], probability, 0)
        share /= share.sum(axis=1, keepdims=True)
        self.chosen[layer] = np.count_nonzero(share, axis=0)
        result = np.zeros_like(h)
        stacks = [self.tensor(f"blk.{layer}.ffn_{name}_exps.{kind}") for kind in ("weight", "bias")[:1 + self.oss] for name in ("gate", "up", "down")]
        mlp = self.oss_mlp if self.oss else self.mlp
        for expert, weights in enumerate(zip(*stacks)):
            its = np.flatnonzero(share[:, expert])
            result[its] += share[its, expert, None] * mlp(h[its], *weights)
        return result

    def embedding(self, tokens):
        tensor = self.tensors["token_embd.weight"]  # its rows alone: all of them may be large
        rows = dequantize(tensor.data[tokens], tensor.tensor_type).astype(np.float64)
        return rows * np.sqrt(rows.shape[1]) if self.gemma else rows

    def activated(self, gate):
        if not self.gemma:
            return gate / (1 + np.exp(-gate))
        return gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))

    def log_probabilities(self, hidden, rows=256):
        """A block of rows of hidden() at a time: float64 [rows, vocabulary]."""
        head = self.weight("output" if "output.weight" in self.tensors else "token_embd")
        for at in range(0, len(hidden), rows):
            logits = hidden[at:at + rows] @ head.T
            logits -= logits.max(axis=1, keepdims=True)
            yield logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def norm(self, x, weight):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon) * weight

    def turns(self, size, base, factor):
        """By what angle each pair turns from one position to the next, and by what queries and keys are multiplied."""
        angle = base ** (-np.arange(0, size, 2) / size)
        if "rope_freqs.weight" in self.tensors:
            angle = angle / self.tensor("rope_freqs.weight")
        if not self.yarn_context:
            return angle / factor, 1
        # YaRN: pairs that turn 32 times in the context turn as ever, those that turn once or less turn slower, a line is between them.
        at = lambda times: size / 2 * np.log(self.yarn_context / (2 * np.pi * times)) / np.log(base)
        slower = np.interp(np.arange(size // 2), [max(at(32), 0), min(at(1), size - 1)], [0, 1])
        return angle * (1 - slower) + angle / factor * slower, 0.1 * np.log(factor) + 1

    def rotate(self, x, base, factor):
        """[heads, positions, size]: pairs of elements turn by position * base^(-2i / size). A GGUF's llama pairs neighbors, 2i and
        2i + 1, and the others pair i and i + size / 2."""
        heads, positions, size = x.shape
        turns, multiplier = self.turns(size, base, factor)
        angle = np.arange(positions)[:, None] * turns
        neighbors = self.architecture == "llama"
        pairs = x.reshape(heads, positions, -1, 2) if neighbors else x.reshape(heads, positions, 2, -1).swapaxes(2, 3)
        turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle) * multiplier
        return np.stack([turned.real, turned.imag], axis=-1 if neighbors else -2).reshape(x.shape)

    def attention(self, layer, q, k, v, rows=256):
        count, group = len(q), self.heads // self.key_value_heads
        local = self.window and self.architecture in LOCAL_PERIOD and (layer + 1) % LOCAL_PERIOD[self.architecture]
        rotation = (LOCAL_BASE, 1.0) if local and self.gemma else (self.base, self.factor)
        by_head = lambda x, heads: x.reshape(count, heads, -1).swapaxes(0, 1)
        q, k, v = by_head(q, self.heads), by_head(k, self.key_value_heads), by_head(v, self.key_value_heads).repeat(group, axis=0)
        if self.architecture in ("qwen3", "qwen3moe", "gemma3"):
            q, k = (self.norm(part, self.weight(f"blk.{layer}.attn_{name}_norm")) for part, name in ((q, "q"), (k, "k")))
        q, k = self.rotate(q, *rotation), self.rotate(k, *rotation).repeat(group, axis=0)
        out = np.empty_like(q)
        for at in range(0, count, rows):
            end = min(count, at + rows)
            scores = q[:, at:end] @ k[:, :end].swapaxes(1, 2) / np.sqrt(self.score_divisor or q.shape[-1])
            back = np.arange(at, end)[:, None] - np.arange(end)
            scores[:, (back < 0) | (back >= self.window if local else False)] = -np.inf
            if self.oss:  # one more score, which has no value
                sinks = self.weight(f"blk.{layer}.attn_sinks")
                scores = np.concatenate([scores, np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))], axis=2)
            share = np.exp(scores - scores.max(axis=2, keepdims=True))
            out[:, at:end] = (share / share.sum(axis=2, keepdims=True))[..., :end] @ v[:, :end]
        return out.swapaxes(0, 1).reshape(count, -1)
