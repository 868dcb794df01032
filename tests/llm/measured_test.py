#!/usr/bin/env python3
"""What measures the chat (tools/races/chat_formats.py and chat_race.py), in small: the pages that they write, and what they leave out.

    measured_test.py CHAT MODEL.gguf
"""

import json
import pathlib
import shutil
import subprocess
import sys

from harness import CHAT, MODEL, expect, expect_equal, main, run, test

TOP = pathlib.Path(__file__).resolve().parents[2]
COMMAND = pathlib.Path(CHAT).resolve().parents[2] / "tools" / "metal-marlin"



def measured(script, scratch, *arguments):
    """Its records, its page, and what it says on standard error."""
    shutil.copy(TOP / "docs" / "llm.md", scratch / "llm.md")
    done = subprocess.run([sys.executable, "-B", TOP / "tools" / "races" / script, CHAT, COMMAND, MODEL, f"--docs={scratch}/llm.md",
                           f"--json={scratch}/records", *arguments], capture_output=True, text=True, timeout=300)
    expect_equal(done.returncode, 0, done.stderr)
    return [json.loads(line) for line in (scratch / "records").read_text().splitlines()], (scratch / "llm.md").read_text(), done.stderr


@test
def formats(scratch):
    (scratch / "text").write_text((TOP / "tests" / "data" / "wonderland.txt").read_text()[4000:5000])
    found, page, _ = measured("chat_formats.py", scratch, "--only=gguf-nvfp4,gptq-int4-g64,marlin-24-int4-g128-2:4", f"--text={scratch}/text")
    fetched, nvfp4, gptq, sparse = found
    for compute in "default", "int8":
        values = [each["perplexity"][compute] for each in (fetched, nvfp4, gptq)]
        expect(10 < values[0] < values[1] < values[2] < 100, f"{compute}: the finer format predicts better: {values}")
    expect_equal(fetched["file_bytes"], pathlib.Path(MODEL).stat().st_size, "bytes of the file")
    expect(gptq["file_bytes"] < nvfp4["file_bytes"] < fetched["file_bytes"], found)
    expect(gptq["weight_bytes"] < nvfp4["weight_bytes"] < fetched["weight_bytes"], found)
    expect(134.5e6 * 4.25 / 8 < gptq["weight_bytes"] < 134.5e6 * 5 / 8, f"134.5 million weights in {gptq['weight_bytes']} bytes")
    expect("groups of 128, found rows of 576" in sparse["absent"] and sparse["absent"] in page, sparse)
    expect(f"| NVFP4 | gguf | {nvfp4['file_bytes'] / 1e6:.1f} | " in page in page, page)


@test
def race(scratch):
    found, page, said = measured("chat_race.py", scratch, "--seconds=0", "--threads=1", "--works=pp16,tg2", f"--llama={scratch}")
    expect_equal([(each["model"], each["candidate"], each["work"], each["samples"]) for each in found],
                 [(model, f"ours {compute}", work, 3) for model in ("Q4_1", "Q4_0") for compute in ("int8", "default") for work in ("pp16", "tg2")], "records")
    expect("left out: llama.cpp: cannot import llama_cpp" in said, said)
    for each in found:
        expect(0 < each["seconds"] < 60 and 2 < each["nats_per_token"] < 5, each)
    expect("| Q4_0 | tg2 | " in page and "Nats per token: Q4_1 ours int8 " in page, page)


@test
def bench(_scratch):
    out, _ = run("--bench", text=b"20 0\n0 2\n3 2\n")
    found = [json.loads(line) for line in out.splitlines()]
    expect_equal([(each["prompt"], each["generate"]) for each in found], [(20, 0), (0, 2), (3, 2)])
    for each in found:
        expect(all((each[kind] > 0) == (each[kind + "_seconds"] > 1e-4) for kind in ("prompt", "generate")), each)
    for line, wanted in (b"3", "expected two numbers of tokens, found '3'"), (b"-1 2", "found '-1 2'"), (b"1 3000", "3000 tokens, and the context has 2048"):
        expect(wanted in run("--bench", text=line, code=1)[1], wanted)


main()
