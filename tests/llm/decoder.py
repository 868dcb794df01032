"""A Llama-style decoder in float64, from the definitions and the GGUF's own numbers: what the chat's answers are checked against.

It shares no code with the chat, keeps no cache and rounds nothing: each text runs whole, so that every position attends to keys
and values in float64. The texts of one call go through the layers together, and each layer's weights are decoded once.
"""

import gguf
import numpy as np
from gguf.quants import dequantize


class Decoder:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        number = lambda key: reader.fields["llama." + key].contents()
        self.layers, self.heads, self.key_value_heads = map(number, ("block_count", "attention.head_count", "attention.head_count_kv"))
        self.base, self.epsilon = number("rope.freq_base"), number("attention.layer_norm_rms_epsilon")

    def weight(self, name):
        tensor = self.tensors[name + ".weight"]
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

    def hidden(self, texts):
        """Lists of tokens to float64 [tokens of all, width]: what the head is multiplied by."""
        tokens = np.concatenate(texts)
        ends = np.cumsum([len(text) for text in texts])
        x = self.weight("token_embd")[tokens]
        for layer in range(self.layers):
            weight = lambda name: self.weight(f"blk.{layer}.{name}")
            h = self.norm(x, weight("attn_norm"))
            q, k, v = (h @ weight(f"attn_{name}").T for name in "qkv")
            attended = [self.attention(*(part[end - len(text):end] for part in (q, k, v))) for text, end in zip(texts, ends)]
            x = x + np.concatenate(attended) @ weight("attn_output").T
            h = self.norm(x, weight("ffn_norm"))
            gate, up = h @ weight("ffn_gate").T, h @ weight("ffn_up").T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ weight("ffn_down").T
        return self.norm(x, self.weight("output_norm"))

    def log_probabilities(self, hidden, rows=256):
        """A block of rows of hidden() at a time: float64 [rows, vocabulary]."""
        head = self.weight("output" if "output.weight" in self.tensors else "token_embd")
        for at in range(0, len(hidden), rows):
            logits = hidden[at:at + rows] @ head.T
            logits -= logits.max(axis=1, keepdims=True)
            yield logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def norm(self, x, weight):
        return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + self.epsilon) * weight

    def rotate(self, x):
        """[heads, positions, size]; a GGUF's llama turns neighbors: elements 2i and 2i + 1 by position * base^(-2i / size)."""
        _, positions, size = x.shape
        angle = np.arange(positions)[:, None] * self.base ** (-np.arange(0, size, 2) / size)
        turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)

    def attention(self, q, k, v, rows=256):
        count, group = len(q), self.heads // self.key_value_heads
        by_head = lambda x, heads: x.reshape(count, heads, -1).swapaxes(0, 1)
        q = self.rotate(by_head(q, self.heads))
        k = self.rotate(by_head(k, self.key_value_heads)).repeat(group, axis=0)
        v = by_head(v, self.key_value_heads).repeat(group, axis=0)
        out = np.empty_like(q)
        for at in range(0, count, rows):
            end = min(count, at + rows)
            scores = q[:, at:end] @ k[:, :end].swapaxes(1, 2) / np.sqrt(q.shape[-1])
            scores[:, np.arange(at, end)[:, None] < np.arange(end)] = -np.inf
            share = np.exp(scores - scores.max(axis=2, keepdims=True))
            out[:, at:end] = share / share.sum(axis=2, keepdims=True) @ v[:, :end]
        return out.swapaxes(0, 1).reshape(count, -1)
