#!/usr/bin/env python3
"""The chat with small models of every architecture: log-probabilities against a decoder in float64, forms of conversations, bad files.

    architectures_test.py CHAT MODEL.gguf
"""

import json
import os
import re

# Before numpy: threads that wait for each other by spinning cost more than they bring when others use the processors, too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from decoder import Decoder
from harness import expect, expect_equal, main, run, test, write_safetensors
from made_models import CONTROL, MODELS, USER_DEFINED, Model, made

ROUNDING = 2e-4  # of a log-probability, in default compute
TEXT = "The quick brown fox jumps over the lazy dog; 0123456789 times (or 3.14), \u00e9t\u00e9 et hiver.\n" * 2


def log_probabilities(logits):
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def found(scratch, model, *options):
    """Rows of log-probabilities of the chat, and the tokens behind the opening."""
    (scratch / "text").write_text(TEXT)
    ids = [int(i) for i in run("--tokenize", "--null", *options, text=TEXT.encode() + b"\0", model=model)[0].split()]
    (scratch / "logits.npy").unlink(missing_ok=True)
    run("--text", str(scratch / "text"), "--logits", str(scratch / "logits.npy"), *options, model=model)
    return log_probabilities(np.load(scratch / "logits.npy").astype(np.float64)), ids


def wanted(decoder, ids):
    opening = [1] if decoder.gemma else []
    return np.concatenate(list(decoder.log_probabilities(decoder.hidden([opening + ids])[len(opening):])))


@test
def probabilities(scratch):
    most = {}
    for name in MODELS:
        model = made(scratch, name)
        decoder = Decoder(model)
        logs, ids = found(scratch, model)
        truth = wanted(decoder, ids)
        expect_equal(logs.shape, truth.shape, name)
        expect(decoder.margin > 1e-4, f"{name}: rounding may choose another expert, whose logit is lower by {decoder.margin:.2g}")
        for layer, tokens in decoder.chosen.items():
            expect((tokens[0] == 0) == (decoder.experts > decoder.experts_used), f"{name}, layer {layer}: tokens of the experts are {tokens}")
        most[name] = np.abs(logs - truth).max()
        expect(most[name] <= ROUNDING, f"{name}: they differ by up to {most[name]:.2g}, expected at most {ROUNDING}")
        for block in "1", "7":
            off = np.abs(found(scratch, model, "--block", block)[0] - truth).max()
            expect(off <= ROUNDING, f"{name} in blocks of {block}: they differ by up to {off:.2g}")
        rounded = np.abs(found(scratch, model, "--compute", "int8")[0] - truth).mean()
        expect(ROUNDING / 10 < rounded < 0.2, f"{name}: INT8 activations differ by {rounded:.2g} on average")
        # What the decoder is told matters: with another value it is another model.
        fewer_or_more = decoder.experts_used - 1 or 2
        for attribute, value in (("base", 123.0), ("factor", 3.0), ("window", 7), ("epsilon", 0.1), ("experts_used", fewer_or_more)):
            if attribute == "window" and not decoder.window or attribute == "experts_used" and not decoder.experts:
                continue
            before = getattr(decoder, attribute)
            setattr(decoder, attribute, value)
            off = np.abs(wanted(decoder, ids) - truth).max()
            expect(off > 10 * ROUNDING, f"{name}: another {attribute} changes nothing: {off:.2g}")
            setattr(decoder, attribute, before)
    return ", ".join(f"{name} {value:.1e}" for name, value in most.items())


@test
def missing_tensors_are_named(scratch):
    mixture = [("qwen3moe", f"ffn_{part}.weight") for part in ("gate_inp", "gate_exps", "up_exps", "down_exps")]
    for name, tensor in (("qwen2", "attn_k.bias"), ("qwen3", "attn_q_norm.weight"), ("gemma3", "post_ffw_norm.weight"),
                         *(("gpt-oss", f"{name}.bias") for name in ("attn_q", "attn_output", "ffn_gate_inp", "ffn_up_exps", "ffn_down_exps")),
                         ("gpt-oss", "attn_sinks.weight"), *mixture):
        err = run("--prompt", "x", model=made(scratch, name, leave_out=[tensor]), code=1)[1]
        wanted_error = f"has no layer 'blk.0.{tensor.removesuffix('.weight')}'" if name == "qwen3moe" else f"blk.0.{tensor}"
        expect(wanted_error in err and err.startswith("metal-marlin-chat: "), f"{name}: {err}")


@test
def no_tensor_is_overlooked(scratch):
    """A model without it would be another one: what is not used is an error, whatever its name."""
    rng = np.random.default_rng(3)
    drawn = [(f"blk.{rng.integers(0, 4)}.{rng.choice(list('abc'))}tn_{rng.choice(list('xyz'))}.{rng.choice(['weight', 'bias', 'scale'])}",
              (96,) if rng.random() < 0.5 else (64, 64)) for _ in range(6)]
    for name, tensor, shape in (("llama", "blk.0.attn_q.bias", (64,)), ("llama", "blk.2.attn_q.weight", (64, 64)), ("llama", "output_norm.bias", (64,)),
                                ("llama", "blk.1.ffn_gate_inp_shexp.weight", (64,)), ("llama", "rope_factors_long.weight", (8,)),
                                ("qwen2", "rope_freqs.weight", (8,)), ("qwen3", "blk.1.ffn_up_shexp.weight", (96, 64)), ("gemma3", "output.bias", (64,)),
                                *((["qwen2", "qwen3", "qwen3moe", "gemma3", "gpt-oss"][i % 5], *each) for i, each in enumerate(drawn))):
        err = run("--prompt", "x", model=made(scratch, name, more=[(tensor, shape)]), code=1)[1]
        expect(f"tensor '{tensor}': expected none of this name in a model of the architecture {name}" in err, f"{name}, {tensor}: {err}")
    for values, wanted_error in ((np.zeros(8), "'rope_freqs.weight': expected numbers above 0, found 0"), (np.ones(7), "expected 8 elements, found 7")):
        model = Model(scratch / "factors.gguf", "llama", **MODELS["llama"])
        model.byte_pairs()
        model.random_weights()
        model.writer.add_tensor("rope_freqs.weight", values.astype(np.float32))
        model.write()
        expect(wanted_error in run("--prompt", "x", model=str(scratch / "factors.gguf"), code=1)[1], wanted_error)


@test
def mixtures_of_other_sizes_are_an_error(scratch):
    """The file says one thing and its tensors are another."""
    path = made(scratch, "qwen3moe")
    with open(path, "rb") as file:
        whole = file.read()
    for key, was, is_, wanted_error in (
            ("expert_count", 8, 9, "'blk.0.ffn_gate_exps': expected 9 experts, found 8"),
            ("expert_feed_forward_length", 160, 128, "'blk.0.ffn_gate_exps': expected 256 rows, found 320"),
            ("expert_used_count", 2, 9, "a token has 9 experts, expected at most as many as there are, 8"),
            ("expert_used_count", 2, 0, "qwen3moe.expert_used_count: expected a whole number from 1 to 16777216, found 0"),
            ("expert_count", 8, 0, "qwen3moe.expert_count: expected a whole number from 1 to 16777216, found 0")):
        name = f"qwen3moe.{key}".encode()
        at = whole.index(name) + len(name) + 4
        expect_equal(whole[at:at + 4], was.to_bytes(4, "little"), key)
        with open(path, "wb") as file:
            file.write(whole[:at] + is_.to_bytes(4, "little") + whole[at + 4:])
        err = run("--prompt", "x", model=path, code=1)[1]
        expect(wanted_error in err, f"{key} {is_}: {err}")
    model = Model(path, "qwen3moe", **MODELS["qwen3moe"])
    model.byte_pairs()
    model.random_weights(router_rows=7)
    model.write()
    err = run("--prompt", "x", model=path, code=1)[1]
    expect("'blk.0.ffn_gate_inp': expected 8 rows, found 7" in err, err)


@test
def a_folder_with_experts_one_by_one(scratch):
    """A mixture with the names of Hugging Face. Its floats become INT8, so its probabilities are near those of the GGUF, not the same."""
    path, folder = made(scratch, "qwen3moe"), scratch / "folder"
    decoder, tensors = Decoder(path), {}
    theirs = {"attn_norm": "input_layernorm", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_q": "self_attn.q_proj",
              "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
              "ffn_gate_inp": "mlp.gate"}
    for ours, name in (("token_embd", "model.embed_tokens"), ("output_norm", "model.norm")):
        tensors[name + ".weight"] = decoder.weight(ours)
    for layer in range(decoder.layers):
        for ours, name in theirs.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = decoder.weight(f"blk.{layer}.{ours}")
        for part in "gate", "up", "down":
            for expert, weights in enumerate(decoder.weight(f"blk.{layer}.ffn_{part}_exps")):
                tensors[f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"] = weights
    folder.mkdir()
    written = {name: tensor.squeeze().astype(np.float16) for name, tensor in tensors.items()}
    written["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(16, np.float16)  # old files have it; it says what config.json says
    write_safetensors(folder / "model.safetensors", written)
    config = {"model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "max_position_embeddings": 512, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "moe_intermediate_size": 160, "num_experts": 8,
              "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
    write = lambda **changed: (folder / "config.json").write_text(json.dumps({**config, **changed}))
    write()
    ours, _ = found(scratch, path)
    for extra in "model.layers.0.self_attn.q_proj.bias", "model.layers.2.mlp.gate.weight", "model.layers.0.mlp.shared_expert.up_proj.weight":
        more = {extra: np.ones(128, np.float16), "model.layers.0.self_attn.k_proj.bias": np.zeros(64, np.float16)}  # as AutoGPTQ's
        write_safetensors(folder / "more.safetensors", more)
        index = {name: "model.safetensors" for name in written} | {name: "more.safetensors" for name in more}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        err = run("--tokenizer", path, "--prompt", "x", model=str(folder), code=1)[1]
        expect(f"tensor '{extra}': expected none of this name" in err, err)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "more.safetensors").unlink()
    other, _ = found(scratch, str(folder), "--tokenizer", path)
    off = np.abs(ours - other)
    expect(np.median(off) < 0.02, f"half of the log-probabilities are off by {np.median(off):.2g} or more")
    for key, value, wanted_error in (("norm_topk_prob", False, "norm_topk_prob: expected true, found false"),
                                     ("decoder_sparse_step", 2, "decoder_sparse_step: expected 1, found 2"),
                                     ("mlp_only_layers", [0], "mlp_only_layers: expected [], found [0]"),
                                     ("num_experts", "8", "has no number 'num_experts'"),
                                     ("num_experts_per_tok", 9, "a token has 9 experts, expected at most as many as there are, 8")):
        write(**{key: value})
        err = run("--tokenizer", path, "--prompt", "x", model=str(folder), code=1)[1]
        expect(wanted_error in err, err)
    return f"half of the log-probabilities are nearer than {np.median(off):.1e} to those of the GGUF"


# What people's files say, in short, as far as the form of a conversation is to be seen in it.
QWEN2 = ("{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
         "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}")
QWEN25 = (r"{{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}"
          r"{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}")
QWEN3 = (r"{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}"
         r"{%- set content = content.split('</think>')[-1].lstrip('\n') %}")
GEMMA3 = "{{ bos_token }}{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else \"\") }}{{ message['content'] | trim }}{{ '<end_of_turn>\n' }}"

LLAMA3 = "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}"
LLAMA31 = LLAMA3 + r'{{- "Cutting Knowledge Date: December 2023\n" }}{{- "Today Date: " + date_string + "\n\n" }}'
LLAMA31_TOLD = "{}system{}\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

HARMONY = ('{{- "<|start|>system<|message|>" }}{{- build_system_message() }}{{- "<|end|>" }}'
           '{{- "<|start|>user<|message|>" + message.content + "<|end|>" }}{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}')


def chain(tokens):
    return dict(zip(tokens, tokens[1:]))


def conversation(scratch, template, more, answer, messages, *options):
    """Has a model that always answers with these tokens say it to each message: what it prints, and how many tokens of prompts it read."""
    path, first = scratch / "planned.gguf", 256
    model = Model(path, "llama", block_count=1, embedding_length=288)
    model.byte_pairs([(name, kind) for name, kind in more])
    number = {name: first + i for i, (name, _) in enumerate(more)} | {chr(byte): byte for byte in range(128)}
    model.planned_answers(chain([number[name] for name in answer]))
    if template:
        model.writer.add_chat_template(template)
    model.write()
    out, err = run("--temperature", "0", "--repeat-penalty", "1", *options, text="".join(each + "\n" for each in messages).encode(), model=str(path))
    return out, int(re.search(r"prompt: (\d+) tokens", err)[1])


def length(text):
    """Tokens of a text whose control tokens are written as {}."""
    return len(text.replace("{}", "_").encode())


@test
def forms_of_conversations(scratch):
    chatml = [("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<think>", USER_DEFINED), ("</think>", USER_DEFINED), ("yes", USER_DEFINED), ("hm", USER_DEFINED)]
    plain = ["\n", "yes", "<|im_end|>"]
    told = lambda system: "{}system\n" + system + "{}\n"
    turn, reply = "{}user\nA question{}\n{}assistant\n", "_{}\n"
    for name, template, system in (("Qwen 2", QWEN2, told("You are a helpful assistant.")),
                                   ("Qwen 2.5", QWEN25, told("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")),
                                   ("Qwen 3", QWEN3, "")):
        out, read = conversation(scratch, template, chatml, plain, ["A question", "A question"])
        expect_equal(out, "yes\nyes\n", name)
        # Of the first answer the model has read all but its end.
        expect_equal(read, length(system + turn + reply + turn) - 1, name)
        _, read = conversation(scratch, template, chatml, plain, ["A question"], "--system", "Be kind.")
        expect_equal(read, length(told("Be kind.") + turn), name + ", told what to be")
    out, read = conversation(scratch, QWEN3, chatml, ["\n", "<think>", "hm", "</think>", "yes", "<|im_end|>"], ["A question", "A question"])
    expect_equal(out, "<think>hm</think>yes\n" * 2)
    expect_equal(read, length(turn + reply + turn), "thoughts are not read again")

    gemma = [("<start_of_turn>", CONTROL), ("<end_of_turn>", CONTROL), ("yes", USER_DEFINED)]
    turn, reply = "{}user\nA question{}\n{}model\n", "_{}\n"
    out, read = conversation(scratch, GEMMA3, gemma, ["\n", "yes", "<end_of_turn>"], [" A question  ", "A question"])
    expect_equal((out, read), ("yes\nyes\n", length(turn + reply + turn) - 1), "Gemma 3")
    out, read = conversation(scratch, GEMMA3, gemma, ["\n", "yes", "<end_of_turn>"], ["A question", "A question"], "--system", "Be kind.")
    expect_equal(read, length("Be kind.\n\n" + turn + reply + turn) - 1, "Gemma 3, told what to be")

    llama3 = [(f"<|{name}|>", CONTROL) for name in ("start_header_id", "end_header_id", "eot_id")] + [("yes", USER_DEFINED)]
    turn, reply = "{}user{}\n\nA question{}{}assistant{}\n\n", "_{}"
    for name, template, system in (("Llama 3", LLAMA3, ""), ("Llama 3.1", LLAMA31, LLAMA31_TOLD + "{}")):
        plain = ["\n", "yes", "<|eot_id|>"]
        out, read = conversation(scratch, template, llama3, plain, [" A question ", "A question"])
        expect_equal((out, read), ("yes\nyes\n", length(system + turn + reply + turn) - 1), name)
        _, read = conversation(scratch, template, llama3, plain, ["A question"], "--system", "Be kind.")
        expect_equal(read, length((system[:-2] or "{}system{}\n\n") + "Be kind.{}" + turn), name + ", told what to be")

    harmony = [(f"<|{name}|>", CONTROL) for name in ("start", "end", "message", "channel", "return")]
    harmony += [(name, USER_DEFINED) for name in ("final", "analysis", "yes", "hm")]
    about = ("{}system{}You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: 2026-01-01\n\nReasoning: medium\n\n"
             "# Valid channels: analysis, commentary, {}. Channel must be included for every message.{}".replace("analysis", "_"))
    turn, reply = "{}user{}A question{}{}assistant", "{}_{}_{}"
    plain = ["t", "<|channel|>", "final", "<|message|>", "yes", "<|return|>"]
    out, read = conversation(scratch, HARMONY, harmony, plain, ["A question", "A question"])
    expect_equal(out, "yes\nyes\n", "Harmony")
    # Of the first answer the model has read all but its end.
    expect_equal(read, length(about + turn + reply + turn) - length("{}_{}_"), "Harmony")
    _, read = conversation(scratch, HARMONY, harmony, plain, ["A question"], "--system", "Be kind.")
    expect_equal(read, length(about + "{}developer{}# Instructions\n\nBe kind.\n\n{}" + turn), "Harmony, told what to be")
    out, read = conversation(scratch, HARMONY, harmony, ["t", "<|channel|>", "analysis", "<|message|>", "hm", "<|end|>", "<|return|>"], ["A question", "A question"])
    expect_equal(out, "<think>hm</think>\n\n" * 2, "Harmony, a thought alone")
    expect_equal(read, length(about + turn + "{}_{}{}" + turn) - 1, "thoughts are not read again")


@test
def a_file_without_a_template_goes_on_with_a_transcript(scratch):
    more = [(name, USER_DEFINED) for name in (" Four", "Us", "ual", "\nUse", "r", "yes")]
    answer = [":", " Four", "\n", "Us", "ual", "\nUse", "r"]
    # Behind the last of them comes the colon, which ends the text that ends an answer.
    out, read = conversation(scratch, None, more, [*answer, ":"], ["1 + 3 is what number", "1 + 1"])
    expect_equal(out, "Four\nUsual\n" * 2)
    first, second = "User_ 1 + 3 is what number\nAssistant_", "User_ 1 + 1\nAssistant_"
    # The answer is read already; "Us" is one token.
    expect_equal(read, length(first + "\n" + second) - 2, "tokens of prompts")


@test
def other_templates_are_an_error(scratch):
    path = scratch / "other.gguf"
    for template, wanted_error in (("{{ '[INST]' + message }}", "expected ChatML (<|im_start|>role ... <|im_end|>), Gemma's form (<start_of_turn>role ... <end_of_turn>), Llama 3's (<|start_header_id|>role"),
                                   (QWEN3, "the chat template's tokens are not in the vocabulary")):
        model = Model(path, "llama", block_count=1, embedding_length=288)
        model.byte_pairs([("yes", USER_DEFINED)])
        model.planned_answers({})
        model.writer.add_chat_template(template)
        model.write()
        expect(wanted_error in run("--prompt", "x", model=str(path), code=1)[1], template)


main()
