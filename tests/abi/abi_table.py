#!/usr/bin/env python3
"""The table of the C ABI: every function, constant and struct of metal_marlin.h.

    abi_table.py HEADER [--compiler CC] [--json FILE] [--cc FILE] [--pins FILE]
    abi_table.py --pinned FILE PINS

writes it as JSON, as what the tests of the exports include, and as pins: the sizes, offsets and values that stay. The second form
writes what a compiler of C says yes to if it sees the ABI of these pins.

Names, types and comments are read from the header, whose C is plain enough for that; sizes, offsets and values are what a
compiled program says of them. Whatever the reader does not know is an error: it never skips a declaration.

The JSON has five lists: handles, types (names of int32_t), constants, structs and functions. A type in it is
{"base": NAME, "pointers": [...]}: one "const" or "mut" a star, from the base outwards, which says whether what that pointer
points to is const; or {"function": {"returns": TYPE, "params": [...]}}. A field may also have "array": its length. "doc" is the
comment of an item; of the table, the rules at the head of the header.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/) | (?P<directive>^[ ]*\#(?:[^\n\\]|\\\n|\\.)*) | (?P<word>[A-Za-z_]\w*) | (?P<number>\d+)
      | (?P<mark>[{}()\[\];,*]) | (?P<space>\s+) | (?P<unknown>.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
FOR_CPP = re.compile(r"^#ifdef __cplusplus\n.*?^#endif\n", re.DOTALL | re.MULTILINE)
INTEGERS = {"int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "size_t": "u64"}
FIXED = [*INTEGERS, "void", "char", "float", "double"]


class Token:
    def __init__(self, kind, text, line, end):
        self.kind, self.text, self.line, self.end = kind, text, line, end


def tokens_of(text):
    line = 1
    for match in TOKEN.finditer(text):
        end = line + match.group().count("\n")
        if match.lastgroup != "space":
            yield Token(match.lastgroup, match.group(), line, end)
        line = end


def prose(comment):
    lines = [re.sub(r"^\s*\* ?", "", line).strip() for line in comment[2:-2].strip().split("\n")]
    return " ".join(line for line in lines if line)


class Reader:
    """Reads declarations; a comment belongs to what ends on the line where it begins, else to what follows."""

    def __init__(self, name, text):
        # Lines stay what they are, so that errors can name them.
        self.text = FOR_CPP.sub(lambda match: "\n" * match.group().count("\n"), text)
        self.name = name
        self.tokens = list(tokens_of(self.text))
        self.at = 0
        self.lead = ""
        self.last_line = 0
        self.last_items = []
        self.table = {"handles": [], "types": [], "constants": [], "structs": [], "functions": []}

    def fail(self, what, token=None):
        token = token or self.tokens[min(self.at, len(self.tokens) - 1)]
        sys.exit(f"{self.name}:{token.line}: {what}, found: {token.text[:60]}")

    def skip_comments(self):
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "comment":
            token = self.tokens[self.at]
            self.at += 1
            if token.line == self.last_line and self.last_items:
                for item in self.last_items:
                    item["doc"] = (item["doc"] + "\n" + prose(token.text)).strip()
            else:
                self.lead = "" if token.text.startswith("/* ---") else prose(token.text)

    def peek(self):
        self.skip_comments()
        return self.tokens[self.at] if self.at < len(self.tokens) else Token("end", "", 0, 0)

    def take(self, text=None):
        token = self.peek()
        if token.kind == "end" or (text is not None and token.text != text):
            self.fail(f"expected {text or 'more'}")
        self.at += 1
        self.last_line = token.end
        return token.text

    def accept(self, text):
        if self.peek().text != text:
            return False
        self.take()
        return True

    def word(self):
        if self.peek().kind != "word":
            self.fail("expected a name")
        return self.take()

    def item(self, **fields):
        fields["doc"], self.lead = self.lead, ""
        self.last_items = [fields]
        return fields

    def type(self):
        const = self.accept("const")
        base = self.word()
        known = {item["name"] for part in ("handles", "types", "structs") for item in self.table[part]}
        if base not in known and base not in FIXED and base != "marlin_api":
            self.fail(f"expected a known type, not {base}")
        pointers = []
        while self.accept("*"):
            pointers.append("const" if const else "mut")
            const = self.accept("const")
        if const and not pointers:
            self.fail("expected no const value")
        return {"base": base, "pointers": pointers}

    def parameters(self):
        params = []
        self.take("(")
        if self.accept("void") and self.accept(")"):
            return params
        if self.tokens[self.at - 1].text == "void":
            self.at -= 1
        while True:
            params.append(self.declarator(self.type(), True))
            if self.accept(")"):
                return params
            self.take(",")

    def declarator(self, type_, may_be_unnamed=False):
        """A name after its type, or (*name)(parameters)."""
        if self.accept("("):
            self.take("*")
            name = self.word()
            self.take(")")
            return {"name": name, "type": {"function": {"returns": type_, "params": self.parameters()}}}
        if may_be_unnamed and self.peek().kind != "word":
            return {"name": "", "type": type_}
        return {"name": self.word(), "type": type_}

    def fields(self):
        fields = []
        while not self.accept("}"):
            type_ = self.type()
            line = []
            while True:
                field = self.declarator(type_)
                field["doc"] = self.lead
                if self.accept("["):
                    field["array"] = int(self.take())
                    self.take("]")
                line.append(field)
                if not self.accept(","):
                    break
            self.lead = ""
            self.take(";")
            self.last_items = line
            fields += line
        return fields

    def typedef(self):
        if not self.accept("struct"):
            type_ = self.type()
            if self.peek().text == "(":  # of a function that is declared anyway, for hosts that look it up
                self.item()
                named = self.declarator(type_)
                if named["type"]["function"] not in [{"returns": f["returns"], "params": f["params"]} for f in self.table["functions"]]:
                    self.fail(f"expected {named['name']} to be the type of a function")
                self.take(";")
                return
            if type_ != {"base": "int32_t", "pointers": []}:
                self.fail("expected int32_t")
            item = self.item(name=self.word())
            self.table["types"].append(item)
        else:
            name = self.word()
            item = self.item(name=name)
            if self.accept("{"):
                item["fields"] = self.fields()
                self.table["structs"].append(item)
            else:
                self.table["handles"].append(item)
            self.take(name)
        self.take(";")
        self.last_items = [item]

    def function(self):
        self.take("MARLIN_EXPORT")
        item = self.item()
        type_ = self.type()
        item.update(name=self.word(), returns=type_, params=self.parameters())
        self.take(";")
        self.table["functions"].append(item)

    def directive(self):
        token = self.peek()
        define = re.match(r"#define (MARLIN_\w+)[\s\\]+([^/]+)", token.text)
        if define and define.group(1) != "MARLIN_EXPORT":
            value = define.group(2).strip()
            type_ = re.fullmatch(r"\(\((\w+)\)\s*-?\s*\d+\)", value)
            if not type_ and not re.fullmatch(r"\d+u?", value):
                self.fail("expected ((type)value) or a plain number")
            item = self.item(name=define.group(1), type=type_.group(1) if type_ else "uint32_t")
            comment = re.search(r"/\*.*?\*/", token.text, re.DOTALL)
            if comment:
                item["doc"] = (item["doc"] + "\n" + prose(comment.group())).strip()
            self.table["constants"].append(item)
        elif token.text.startswith("#ifndef"):  # the include guard, behind the rules
            self.table["doc"] = self.lead
        self.take()
        self.lead = ""

    def read(self):
        while (token := self.peek()).kind != "end":
            if token.kind == "directive":
                self.directive()
            elif token.text == "MARLIN_EXPORT":
                self.function()
            elif self.accept("typedef"):
                self.typedef()
            else:
                self.fail("expected a declaration")
        return self.table


def measure(table, header, compiler):
    """Sizes, alignments, offsets and values, as a compiled program sees them."""
    lines = []
    for struct in table["structs"]:
        name = struct["name"]
        lines.append(f'  struct align_{name} {{ char c; {name} s; }};')
        lines.append(f'  printf("%zu %zu\\n", sizeof({name}), offsetof(struct align_{name}, s));')
        for field in struct["fields"]:
            of = f'(({name}*)0)->{field["name"]}'
            lines.append(f'  printf("%zu %zu\\n", offsetof({name}, {field["name"]}), sizeof({of}));')
    for constant in table["constants"]:
        lines.append(f'  printf("%lld %zu\\n", (long long)({constant["name"]}), sizeof({constant["name"]}));')
    program = "#include <stdio.h>\n#include <stddef.h>\n#include \"%s\"\nint main(void) {\n%s\n  return 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "probe.c"), pathlib.Path(folder, "probe")
        source.write_text(program % (header.resolve(), "\n".join(lines)))
        subprocess.run([compiler, "-std=c99", str(source), "-o", str(binary)], check=True)
        output = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout
    rows = iter([[int(word) for word in line.split()] for line in output.splitlines()])
    for struct in table["structs"]:
        struct["size"], struct["align"] = next(rows)
        for field in struct["fields"]:
            field["offset"], field["size"] = next(rows)
    for constant in table["constants"]:
        constant["value"], size = next(rows)
        if size != 4:
            sys.exit(f'{constant["name"]} has {size} bytes, expected 4')


def abi_table(header, compiler):
    header = pathlib.Path(header)
    table = Reader(header.name, header.read_text()).read()
    measure(table, header, compiler)
    return table


# --- for the tests in C++ --------------------------------------------------------------------------------------------------


def kind(type_, table):
    """How a value of this type is passed: an enumerator of abi_test::Kind."""
    if "function" in type_ or type_["pointers"]:
        return "pointer"
    if type_["base"] in {item["name"] for item in table["types"]}:
        return "i32"
    return {"void": "nothing", **INTEGERS}[type_["base"]]


def spelling(type_):
    if "function" in type_:
        return "function"
    text = type_["base"]
    for pointee in type_["pointers"]:
        text = ("const " + text if pointee == "const" and "*" not in text else text + " const" * (pointee == "const")) + "*"
    return text


def cc(table):
    def row(name, function):
        params = ", ".join(
            f'{{"{spelling(p["type"])}", "{p["name"]}", Kind::{kind(p["type"], table)}}}' for p in function["params"]
        )
        return f'    {{"{name}", Kind::{kind(function["returns"], table)}, {{{params}}}}},'

    functions = [row(f["name"], f) for f in table["functions"]]
    callbacks = [
        row(f'{struct["name"]}.{field["name"]}', field["type"]["function"])
        for struct in table["structs"]
        for field in struct["fields"]
        if "function" in field["type"] and struct["name"] != "marlin_api"
    ]
    return "\n".join(
        ["// Written by abi_table.py from metal_marlin.h.", "inline const std::vector<Signature> kFunctions = {", *functions, "};"]
        + ["inline const std::vector<Signature> kCallbacks = {", *callbacks, "};"]
    )


# --- pins --------------------------------------------------------------------------------------------------------------------


def pins(table):
    """A paragraph for each struct, with its size and its fields' offsets, and for the constants of each type but versions."""
    rows = {f"{s['name']} {s['size']}": [f"{field['name']} {field['offset']}" for field in s["fields"]] for s in table["structs"]}
    for item in table["constants"]:
        if not re.match("MARLIN_(VERSION|ABI)_", item["name"]):
            rows.setdefault(item["type"], []).append(f"{item['name']} {item['value']}")
    return "".join(textwrap.fill(f"{head}: {', '.join(row)}", 130, subsequent_indent="  ") + "\n" for head, row in rows.items())


def pinned(text):
    """Rows of macros of pinned.c. Each field ends where the next one starts, so there is no padding."""
    for line in text.replace("\n  ", " ").splitlines():
        head, _, rest = line.partition(": ")
        name, _, size = head.partition(" ")
        items = [(item, int(number)) for item, number in (each.split(" ") for each in rest.split(", "))]
        for (item, number), (_, end) in zip(items, [*items[1:], ("", int(size or 0))]):
            yield f"FIELD({name}, {item}, {number}, {end - number});" if size else f"VALUE({name}, {item}, {number});"
        if size or name != "uint32_t":
            yield f"END({name}, {size});" if size else f"TYPE({name});"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("header")
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--cc", type=pathlib.Path)
    parser.add_argument("--pins", type=pathlib.Path)
    parser.add_argument("--pinned", type=pathlib.Path)
    options = parser.parse_args()
    if options.pinned:
        options.pinned.write_text("\n".join(pinned(pathlib.Path(options.header).read_text())) + "\n")
        return
    table = abi_table(options.header, options.compiler)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")
    if options.cc:
        options.cc.write_text(cc(table) + "\n")
    if options.pins:
        options.pins.write_text(pins(table))


if __name__ == "__main__":
    main()
