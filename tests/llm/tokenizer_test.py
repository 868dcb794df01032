#!/usr/bin/env python3
"""The chat's tokenizers on thousands of strings of many scripts: byte-level BPE against the PyPI package tokenizers, SentencePiece
against its definition.

    tokenizer_test.py CHAT MODEL.gguf

Prints a line for each test, "passed NAME" or "FAILED NAME: why"; the exit status is 1 when one failed.
"""

import collections
import pathlib
import random
import subprocess
import sys
import tempfile

import gguf
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from made_models import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from pieces import SPACE, Pieces

CHAT, MODEL = sys.argv[1:]
READER = gguf.GGUFReader(MODEL)
WONDERLAND = pathlib.Path(__file__).parents[1] / "data" / "wonderland.txt"
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
    yield from ("helloworld", "say helloworld xyzzyplugh 12 345 12345", "!?!? a   b", "12345678")
    yield "x" * 3000
    yield "=" * 3000 + " " * 3000
    for _ in range(STRINGS):
        of = rng.sample(ALPHABETS, rng.randint(1, 4))
        parts = (rng.choice(alphabet) for alphabet in rng.choices(of, k=rng.randint(1, 40)))
        yield rng.choice(["", "", " "]).join(parts)


QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")


# With small and capital letters, as tokenizers has the rule of GPT-4o (o200k_base).
CAPITALS, SMALL, SUFFIX = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}*{SMALL}+{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}+{SMALL}*{SUFFIX}|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def value(key):
    return READER.fields["tokenizer.ggml." + key].contents()


def reference(pre):
    """The model's tokenizer, with words as this pre-tokenizer cuts them."""
    merges = [tuple(merge.split(" ")) for merge in value("merges")]
    whole = pre == "llama-bpe"
    model = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens_for(pre))}, merges, ignore_merges=whole))
    first = {"smollm": pre_tokenizers.Digits(individual_digits=True), "qwen2": pre_tokenizers.Split(tokenizers.Regex(QWEN2), "isolated"),
             "llama-bpe": pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated"), "smaug-bpe": pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated"),
             "gpt-4o": pre_tokenizers.Split(tokenizers.Regex(GPT4O), "isolated")}[pre]
    model.pre_tokenizer = pre_tokenizers.Sequence([first, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre == "smollm")])
    model.decoder = decoders.ByteLevel()
    return model


def tokens_for(pre):
    """Some of the tokens that merging gives, the same words from no merge, as Llama 3 has some that stand for whole words."""
    tokens = list(value("tokens"))
    if pre in ("llama-bpe", "smaug-bpe"):
        free = [i for i, kind in enumerate(value("token_type")) if kind == CONTROL][3:]
        for i, word in zip(free, ("helloworld", "\u0120xyzzyplugh", "12", "345", "!?!?", "\u0120\u0120\u0120")):
            tokens[i] = word if word not in tokens else word * 2
    return tokens


def with_words_of(pre, path):
    """The model's tokenizer as a file whose words are others."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_bos_token_id(0)
    tokens = tokens_for(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([kind if token == old else NORMAL for kind, token, old in zip(value("token_type"), tokens, value("tokens"))])
    writer.add_token_merges(value("merges"))
    write(writer)


def with_pieces(path, space_prefix):
    """Pieces that are frequent in a text, with scores in no order, and what SentencePiece would cut it into."""
    text = WONDERLAND.read_text().replace(" ", SPACE)
    counts = collections.Counter(text[at:at + size] for size in range(1, 8) for at in range(0, len(text) - size, 3))
    rng = random.Random(7)
    pieces = [piece for piece, _ in counts.most_common(3000) if "\n" not in piece]
    added = ["\n", "\n\n", "  ", "    ", "<b>", "</b>", "don't"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *added]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces) + [USER_DEFINED] * len(added)
    scores = [0.0] * 259 + [float(rng.randint(-500, 0)) for _ in pieces] + [0.0] * len(added)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(names)
    writer.add_token_types(types)
    writer.add_token_scores(scores)
    writer.add_bos_token_id(1)
    writer.add_add_space_prefix(space_prefix)
    write(writer)
    return Pieces(names, types, scores, space_prefix)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def chat(model, option, lines, end):
    done = subprocess.run([CHAT, model, option, "--null"], input=b"".join(line + end for line in lines), capture_output=True, check=True)
    return done.stdout


def check(name, model, texts, wanted, missing=b"", comes_back=lambda text: True):
    """True if the tokens are these lists of numbers, and stand for the texts without the bytes that are missing in the vocabulary."""
    ids = [[int(i) for i in line.split()] for line in chat(model, "--tokenize", [t.encode() for t in texts], b"\0").decode().split("\n")[:-1]]
    back = chat(model, "--detokenize", [" ".join(map(str, line)).encode() for line in ids], b"\n").split(b"\0")[:-1]
    wrong = [each for each in zip(texts, ids, wanted, strict=True) if each[1] != each[2]]
    wrong += [each for each in zip(texts, back, strict=True) if comes_back(each[0]) and each[1] != each[0].encode().translate(None, missing)]
    print(f"FAILED {name}: {len(wrong)} of {len(texts)}, the first: {wrong[0]}" if wrong else f"passed {name}: {len(texts)} strings")
    return not wrong


def main():
    # A zero byte ends a text on its way in, so that texts have none of their own.
    texts = [text.replace("\0", "") for text in strings()]
    right = True
    with tempfile.TemporaryDirectory() as folder:
        pieces = f"{folder}/pieces.gguf"
        for pre in "smollm", "gpt-4o", "qwen2", "llama-bpe", "smaug-bpe":
            path = MODEL if pre == "smollm" else f"{folder}/{pre}.gguf"
            if path != MODEL:
                with_words_of(pre, path)
            model = reference(pre)
            # Some control characters have no token and are left out.
            missing = bytes(b for b in range(128) if not model.encode(chr(b)).ids)
            right &= check(f"byte-level BPE, {pre}", path, texts, [each.ids for each in model.encode_batch(texts)], missing)
            texts = texts[::2 if pre in ("gpt-4o", "qwen2") else 1]
        short = [text for text in texts if len(text) < 60][::5] + ["don't  <b>Alice</b>\n\n\n   she don'tt", "a" * 60, "\u2581 \u2581"]
        for space_prefix in False, True:
            model = with_pieces(pieces, space_prefix)
            # The character that stands for a space in pieces comes back as one, and text behind an added token with one in front.
            comes_back = lambda text: SPACE not in text and not (space_prefix and model.added.search(text))
            right &= check(f"SentencePiece, {'with' if space_prefix else 'without'} a space in front", pieces, short,
                           [model.encode(text) for text in short], comes_back=comes_back)
    return 0 if right else 1


sys.exit(main())
