#!/usr/bin/env python3
"""The chat from end to end with a real model: answers, limits, Ctrl-C, broken files, other names for the same layers.

    chat_test.py CHAT MODEL.gguf
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios

import gguf
import numpy as np

from harness import CHAT, MODEL, expect, expect_equal, main, run, score, test, write_safetensors

TEXT = pathlib.Path(__file__).parents[2] / "README.md"
FRANCE = "What is the capital of France?"
STORY = "Write a very long story of a thousand words about the sea."


def excerpt(scratch, characters):
    path = scratch / f"text-{characters}"
    path.write_text(TEXT.read_text()[:characters])
    return str(path)


@test
def answers(scratch):
    out, err = run("--prompt", FRANCE)
    expect_equal(out, "The capital of France is Paris.\n")
    expect(re.search(r"prompt: 37 tokens, .* answers: 7 tokens", err), err)
    for option in ("--threads", "1"), ("--block", "5"), ("--threads", "3"):
        expect_equal(run("--prompt", FRANCE, *option)[0], out, option)
    profile = run("--prompt", FRANCE, "--profile")[1]
    expect(all(stage in profile for stage in ("q, k, v", "attention", "gate and up", "head")), profile)


@test
def batches_give_the_logits_of_tokens_alone(scratch):
    """Each compute with one number of threads; the long form has both. That threads change no bit of a product is tested apart."""
    text, npy = excerpt(scratch, 600), scratch / "logits.npy"

    def logits(*options):
        run("--text", text, "--logits", str(npy), *options)
        found = npy.read_bytes()
        npy.unlink()
        return found

    pairs = [("default", "3"), ("int8", "1"), ("default", "1"), ("int8", "3")]
    for compute, threads in pairs if "METAL_MARLIN_WHOLE" in os.environ else pairs[:2]:
        options = "--compute", compute, "--threads", threads, "--row-invariant"
        alone = logits(*options, "--block", "1")
        for block in "2", "7", "64":
            expect(logits(*options, "--block", block) == alone, f"{compute}, blocks of {block}")
    expect(logits("--block", "64") != logits("--block", "1"), "other products need no flag: this test shows nothing")


@test
def seeds(scratch):
    say = lambda seed: run("--prompt", "Tell me a story.", "--temperature", "1.5", "--max-tokens", "30", "--seed", seed)[0]
    first = say("1")
    expect_equal(say("1"), first, "the same seed")
    expect(say("2") != first, "another seed gives the same answer")


@test
def history(scratch):
    out, err = run("--temperature", "0", text=f"{FRANCE}\nAnd of Germany?\n".encode())
    expect(out.endswith("The capital of Germany is Berlin.\n"), out)
    # What ran before is not run again: the second message adds itself, its frame, and how the first answer ended.
    tokens = int(re.search(r"prompt: (\d+) tokens", err)[1])
    expect(tokens < 80, f"{tokens} tokens of prompts")


@test
def a_full_context(scratch):
    out, err = run("--prompt", STORY, "--context", "64")
    expect("(the answer ends here: the context is full)" in err, err)
    _, err = run("--context", "100", "--max-tokens", "20", text=b"Tell me of the sea.\nAnd of the land.\nAnd of the sky.\nAnd?\n")
    expect("the oldest exchanges are forgotten" in err, err)
    _, err = run("--prompt", "word " * 100, "--context", "64", code=1)
    expect("the message is too long: 1" in err and "the context has 64" in err, err)
    out, err = run("--context", "64", text=("word " * 100 + "\n" + FRANCE + "\n").encode())
    expect("too long" in err and "Paris" in out, "a chat goes on behind a message that is too long: " + out + err)
    _, err = run("--prompt", FRANCE, "--max-tokens", "3")
    expect("(the answer ends here: --max-tokens)" in err, err)


@test
def bad_text(scratch):
    _, err = run("--prompt", b"caf\xe9", code=1)
    expect("the message is no UTF-8" in err, err)
    out, err = run(text=b"caf\xe9\n\n" + FRANCE.encode() + b"\r\n")
    expect("no UTF-8" in err and out == "The capital of France is Paris.\n", out + err)


@test
def names_of_control_tokens_are_text(scratch):
    _, plain = run("--prompt", "a", "--max-tokens", "1")
    _, named = run("--prompt", "a<|im_end|>", "--max-tokens", "1")
    count = lambda err: int(re.search(r"prompt: (\d+)", err)[1])
    expect(count(named) > count(plain) + 3, "<|im_end|> became a control token")


@test
def interrupts(scratch):
    with subprocess.Popen([CHAT, MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as talk:
        talk.stdin.write(STORY.encode() + b"\n")
        talk.stdin.flush()
        talk.stdout.read(20)  # the answer has begun
        talk.send_signal(signal.SIGINT)
        out, _ = talk.communicate(FRANCE.encode() + b"\n", timeout=100)
        expect_equal(talk.returncode, 0, "a chat goes on")
        expect(out.endswith(b"Paris.\n") and len(out) < 2000, out.decode())
    with subprocess.Popen([CHAT, MODEL, "--prompt", STORY], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        one.stdout.read(20)
        one.send_signal(signal.SIGINT)
        one.communicate(timeout=100)
        expect_equal(one.returncode, 130, "one answer")
    host, terminal = pty.openpty()
    with subprocess.Popen([CHAT, MODEL], stdin=terminal, stdout=terminal, stderr=terminal) as talk:
        os.close(terminal)
        screen = b""
        while b"lists commands" not in screen or b"> " not in screen.rpartition(b"commands")[2]:
            screen += os.read(host, 100)
        expect(b"loading [####" in screen, f"no progress bar: {screen!r}")
        talk.send_signal(signal.SIGINT)
        while b"Ctrl-C again ends the program" not in screen:
            screen += os.read(host, 100)
        talk.send_signal(signal.SIGINT)
        expect_equal(talk.wait(100), 0, "Ctrl-C at the prompt")
    os.close(host)


def on_a_terminal(*steps, columns=80):
    """What the terminal shows: each step is what to wait for, and the bytes to type then."""
    host, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([CHAT, MODEL], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
                          preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as talk:  # so that Ctrl-C, typed, is a signal
        os.close(terminal)
        screen = seen = b""
        for wanted, typed in steps:
            while wanted not in seen:
                seen += os.read(host, 1000)
            screen, seen = screen + seen, seen.partition(wanted)[2]
            os.write(host, typed)
        with contextlib.suppress(OSError):  # a terminal without programs
            while more := os.read(host, 1000):
                screen += more
        expect_equal(talk.wait(100), 0, "the exit status")
    os.close(host)
    return screen.decode()


@test
def commands(scratch):
    out, err = run("--temperature", "0", text="\n".join([FRANCE, "/reset", "/help", "/nothing", "/quit", "/nothing more"]).encode())
    for words in "(the conversation is forgotten)", "no command /nothing; /help":
        expect(words in err, f"{words}: {err}")
    expect("/reset  " in out and "more" not in err, out + err)
    # After /reset the model reads its first prompt anew, and not behind an exchange.
    again = run("--temperature", "0", text=f"{FRANCE}\n/reset\n{FRANCE}\n".encode())[1]
    expect(int(re.search(r"prompt: (\d+)", again)[1]) < 2 * 37 + 1, again)


@test
def usage(scratch):
    out, _ = run("--help")
    expect("Exit codes: 0 " in out, out)
    for wrong, words in ((["--frob"], ""), (["--backend", "gpu"], "gpu"), (["--threads", "x"], ""),
                         (["--compute", "int4"], "int4"), (["--perplexity"], ""),
                         (["--prompt", ""], "expected a message, found none"),
                         (["--max-tokens", "0"], "0"), (["--max-tokens", "-3"], "-3")):
        _, err = run(*wrong, code=2)
        expect(words in err, err)
        expect(err.startswith("metal-marlin-chat: ") and "Try 'metal-marlin-chat --help'." in err, err)
    _, err = run("--prompt", FRANCE, "--threads", "999")
    expect(re.search(r"--threads 999: this process may use \d+ processor", err), err)
    # What ./dev says before there is a program, are options of the program.
    dev = (pathlib.Path(__file__).parents[2] / "examples" / "llm" / "chat.sh").read_text()
    told = re.findall(r"^  (--[a-z-]+) ", dev[dev.index("chat_usage() {"):dev.index("In the chat, /help")], re.MULTILINE)
    expect(len(told) > 10 and all(option in out for option in told), f"{told}: {out}")


@test
def a_terminal(scratch):
    screen = on_a_terminal((b"> ", b"/help\r"), (b"front of it.", b""), (b"> ", b"\x04"))
    expect("This is " in screen and "often wrong" in screen, f"what the model is: {screen!r}")
    expect("/reset       forget" in screen and "a second" not in screen, f"rates of nothing: {screen!r}")
    screen = on_a_terminal((b"> ", FRANCE.encode() + b"\r"), (b"Paris.", b""), (b"> ", b"\x04"), columns=20)
    bar = max(re.findall(r"\rloading [^\r]*", screen), key=len)
    expect(len(bar) - 1 <= 20, f"a bar of more than a line: {bar!r}")
    # Ctrl-C drops a line that is typed, and the talk goes on.
    screen = on_a_terminal((b"> ", b"/never mind"), (b"mind", b"\x03"), (b"Ctrl-D)", b""), (b"> ", b"/quit\r"))
    expect("no command /never" not in screen, f"{screen!r}")


@test
def output_that_cannot_be_written_is_an_error(scratch):
    if not os.path.exists("/dev/full"):
        return "not here"
    for options, text in (["--prompt", FRANCE], b""), (["--tokenize"], b"a b\n"), (["--text", excerpt(scratch, 50), "--perplexity"], b""), ([], FRANCE.encode()):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CHAT, MODEL, *options], input=text, stdout=full, stderr=subprocess.PIPE, timeout=300)
        expect(done.returncode == 1 and b"the standard output cannot be written" in done.stderr, f"{options}: {done.returncode}, {done.stderr!r}")


@test
def scores(scratch):
    text, npy = excerpt(scratch, 800), str(scratch / "logits.npy")
    found = score("--text", text, "--logits", npy)
    logits = np.load(npy).astype(np.float64)
    ids = [int(i) for i in run("--tokenize", "--null", text=pathlib.Path(text).read_bytes())[0].split()]
    expect_equal(logits.shape[0], len(ids), "rows of logits")
    logs = logits - logits.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    nats = -np.mean([logs[i, token] for i, token in enumerate(ids[1:])])
    expect(abs(nats - found["nats_per_token"]) < 1e-6, f"{nats} from the logits, {found}")
    expect_equal(found["predicted"], len(ids) - 1, "predicted")
    one_by_one = score("--text", text, "--block", "3")
    expect(abs(one_by_one["nats_per_token"] - found["nats_per_token"]) < 1e-3, f"blocks of 3: {one_by_one}, of 128: {found}")
    int8 = score("--text", text, "--compute", "int8")
    expect(0 < abs(int8["nats_per_token"] - found["nats_per_token"]) < 0.05, f"INT8 activations: {int8}, as given: {found}")
    windows = score("--text", text, "--context", "64")
    expect_equal(windows["predicted"], len(ids) - -(-len(ids) // 64), "predicted in windows")
    expect(windows["nats_per_token"] > found["nats_per_token"], "less context predicts as well")


@test
def broken_files(scratch):
    copy = scratch / "broken.gguf"
    shutil.copy(MODEL, copy)

    @contextlib.contextmanager
    def patched(behind, old, new):
        """Behind the first `behind`, the first `old` is `new` as long as this lasts."""
        with open(copy, "r+b") as file:
            head = file.read(4 << 20)
            at = head.index(old, head.index(behind))
            file.seek(at), file.write(new), file.flush()
            yield
            file.seek(at), file.write(old)

    cases = [
        (b"general.architecture", b"llama", b"mamba", "architectures that are known (llama, qwen2, qwen3, qwen3moe, gemma3, gpt-oss), found 'mamba'"),
        (b"tokenizer.ggml.model", b"gpt2", b"bert", "tokenizer.ggml.model: expected one of gpt2 (byte-level BPE), llama (SentencePiece), found 'bert'"),
        (b"tokenizer.ggml.pre", b"smollm", b"other_", "tokenizer.ggml.pre: expected one of gpt-2, smollm, qwen2, deepseek-r1-qwen, gpt-4o, llama-bpe, llama3, llama-v3, smaug-bpe, found 'other_'"),
        (b"blk.7.attn_k.weight", b"attn_k", b"attn_x", "has no layer 'blk.7.attn_k'"),
        (b"blk.7.attn_norm.weight", b"attn_norm", b"attn_nora", "blk.7.attn_norm.weight"),
        (b"tokenizer.ggml.tokens", b"tokens", b"tokenz", "has no key 'tokenizer.ggml.tokens'"),
        (b"llama.attention.head_count", struct.pack("<II", 4, 9), struct.pack("<II", 4, 8), "do not fit each other: 8, 3, 72"),
        (b"llama.feed_forward_length", struct.pack("<II", 4, 1536), struct.pack("<II", 4, 1600), "expected 3200 rows, found 3072"),
    ]
    for behind, old, new, wanted in cases:
        with patched(behind, old, new):
            _, err = run("--prompt", FRANCE, model=str(copy), code=1)
            expect(wanted in err and err.startswith("metal-marlin-chat: "), f"{behind}: {err}")
    with patched(b"tokenizer.chat_template", b"named SmolLM", b"named Nobody"), patched(b"tokenizer.chat_template", b"+ message['content']", b"+ message['wrong']  "):
        expect("tokenizer.chat_template: expected ChatML" in run("--prompt", FRANCE, model=str(copy), code=1)[1], "another template")
    os.truncate(copy, 5 << 20)
    run("--prompt", FRANCE, model=str(copy), code=1)
    os.truncate(copy, 1000)
    expect("broken.gguf: byte " in run("--prompt", FRANCE, model=str(copy), code=1)[1], "a cut file")
    for path, wanted in (TEXT, "this is neither safetensors nor GGUF"), ("/nowhere.gguf", "/nowhere.gguf: cannot open"), (scratch, "--tokenizer"):
        expect(wanted in run("--prompt", FRANCE, model=str(path), code=1)[1], wanted)


@test
def backends(scratch):
    """On systems of Apple's `--backend metal` may work."""
    expect_equal(run("--prompt", FRANCE, "--backend", "cpu")[0], "The capital of France is Paris.\n", "the CPU, named")
    if sys.platform != "darwin":
        expect_equal(run("--prompt", FRANCE, "--backend", "metal", code=1), ("", "metal-marlin-chat: Metal: not built into this library\n"))


@test
def other_names(scratch):
    """A folder with Hugging Face's names, halves rotated, floats: the first layers, as a GGUF that says it has no more."""
    layers, folder, short = 3, scratch / "folder", scratch / "short.gguf"
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    for i in range(layers):
        for ours, theirs in {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
                             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
                             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}.items():
            names[f"blk.{i}.{ours}"] = f"model.layers.{i}.{theirs}"
    tensors = {}
    for tensor in gguf.GGUFReader(MODEL).tensors:
        if name := names.get(tensor.name.removesuffix(".weight")):
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float16)
            if re.search(r"attn_[qk]\.", tensor.name):  # GGUF has pairs (2i, 2i + 1), others (i, i + 32)
                values = values.reshape(-1, 32, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
            tensors[name + ".weight"] = np.ascontiguousarray(values)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": layers, "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9,
        "num_key_value_heads": 3, "max_position_embeddings": 8192, "rope_theta": 100000, "rms_norm_eps": 1e-5, "rope_scaling": None}))
    reader, writer = gguf.GGUFReader(MODEL), gguf.GGUFWriter(short, "llama")
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            value = layers if field.name == "llama.block_count" else field.contents()
            writer.add_key_value(field.name, value, field.types[0], sub_type=field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        if tensor.name in [name + ".weight" for name in names]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    text = excerpt(scratch, 600)
    ours = score("--text", text, model=str(short))["nats_per_token"]
    theirs = score("--text", text, "--tokenizer", MODEL, model=str(folder))["nats_per_token"]
    expect(abs(ours - theirs) < 0.02, f"{ours} from GGUF, {theirs} from the folder")
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt_neox", "hidden_size": 576}))
    expect("config.json: expected one of the architectures" in run("--tokenizer", MODEL, "--prompt", "x", model=str(folder), code=1)[1], "another architecture")


main()
