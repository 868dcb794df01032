#!/usr/bin/env python3
"""The chat's tokenizer against the PyPI package tokenizers, on thousands of strings of many scripts.

    tokenizer_test.py CHAT MODEL.gguf

Prints a line for each test, "passed NAME" or "FAILED NAME: why"; the exit status is 1 when one failed.
"""

import random
import subprocess
import sys

import gguf
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

CHAT, MODEL = sys.argv[1:]
STRINGS = 10000

# Letters of many scripts, marks that combine, numbers of every kind, spaces of every kind, symbols and emoji with joiners.
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "the and of to in is that it was for on are as with his they at be this have from or one had by word but not what all were".split(),
    "0123456789²³¼½Ⅷⅻ٣४५๗一二三①⑳𝟘𝟙",
    " \t\n\r\v\f\u00a0\u1680\u2003\u2028\u2029\u202f\u3000\u0085",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»“”‘’…—€£¥§©®°±×÷",
    "'s 't 're 've 'm 'll 'd 'S 'LL ''s s't".split(),
    "áéíóúñçßøåæœžščřłđþðÁÉÜÖÄ",
    "αβγδεζηθικλμνξοπρστυφχψωάέήΩ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяЁЇҐ",
    "אבגדהוזחטיכלמנסעפצקרשתְִֵֶַָ",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهويًٌٍَُِّْ",
    "अआइईउऊएऐओऔकखगघचछजझटठडढतथदधनपफबभमयरलवशषसहािीुूेैोौ्ं",
    "กขคงจฉชซญดตถทธนบปผฝพฟภมยรลวศษสหอฮะาิีึืุูเแโใไ่้๊๋",
    "你好世界中国人民汉字学习语言模型日月火水木金土",
    "ひらがなカタカナ日本語ｶﾀｶﾅー々〆",
    "한국어안녕하세요가나다라마바사",
    "ⴰⴱⵀⵃⴷ", "ქართული", "հայերեն", "አማርኛ", "ಕನ್ನಡ", "தமிழ்", "తెలుగు", "ខ្មែរ", "ພາສາລາວ", "မြန်မာ",
    "😀😂🥲👩‍👩‍👧‍👦👍🏽🇩🇪🏳️‍🌈❤️☃★♞♫",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢𐍈𐎠𒀀𓀀𠀀𠮷",
    "\u0000\u0001\u0004\u0007\u001b\u007f\u200b\u200d\u2060\ufeff\ufffd\U000e0001\U000f0000\U0010ffff",
]


def strings():
    rng = random.Random(20)
    yield from ("", " ", "  ", "a", " a", "  a", "a ", "a  ", "\n\n", " \n a", "a1b22 333", "it's I'll we'VE", "<|im_start|>user\n")
    yield "x" * 3000
    yield "=" * 3000 + " " * 3000
    for _ in range(STRINGS):
        of = rng.sample(ALPHABETS, rng.randint(1, 4))
        parts = (rng.choice(alphabet) for alphabet in rng.choices(of, k=rng.randint(1, 40)))
        yield rng.choice(["", "", " "]).join(parts)


def reference(reader):
    value = lambda key: reader.fields["tokenizer.ggml." + key].contents()
    merges = [tuple(merge.split(" ")) for merge in value("merges")]
    model = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(value("tokens"))}, merges))
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    model.decoder = decoders.ByteLevel()
    return model


def chat(option, lines, end):
    done = subprocess.run([CHAT, MODEL, option, "--null"], input=b"".join(line + end for line in lines), capture_output=True, check=True)
    return done.stdout


def main():
    texts = list(strings())
    model = reference(gguf.GGUFReader(MODEL))
    # A zero byte ends a text on its way in, so that texts have none of their own.
    texts = [text.replace("\0", "") for text in texts]
    ids = [[int(i) for i in line.split()] for line in chat("--tokenize", [t.encode() for t in texts], b"\0").decode().split("\n")[:-1]]
    back = chat("--detokenize", [" ".join(map(str, line)).encode() for line in ids], b"\n").split(b"\0")[:-1]
    failures = []

    def check(name, wrong):
        failures.extend(wrong[:1])
        print(f"FAILED {name}: {len(wrong)} of {len(texts)}, the first: {wrong[0]}" if wrong else f"passed {name}: {len(texts)} strings")

    check("encode", [(text, found, wanted.ids) for text, found, wanted in zip(texts, ids, model.encode_batch(texts), strict=True)
                     if found != wanted.ids])
    # Some control characters have no token and are left out.
    missing = bytes(b for b in range(128) if not model.encode(chr(b)).ids)
    check("round trip", [(text, found) for text, found in zip(texts, back, strict=True) if found != text.encode().translate(None, missing)])
    return 1 if failures else 0


sys.exit(main())
