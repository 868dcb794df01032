"""Finds the places of a C++ source where a small mistake can be planted, and writes all of them into one copy, each behind a switch.

An edit is one small change of one function: another operator, a condition without a term or negated, a constant one larger, a
statement left out, two neighboring arguments exchanged. The copy computes as the original does until a switch (switch.h) is on:

    if (m < rows)    becomes    if ((::marlin_mutation::on(17) ? (m <= rows) : (m < rows)))

Lines keep their numbers. Whatever has to be constant for the compiler is left alone.
"""
import dataclasses
import re

import tree_sitter
import tree_sitter_cpp

OTHER_OPERATOR = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "/": "*",
                  "%": "/", "&&": "||", "||": "&&", "&": "|", "|": "&", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=",
                  "*=": "+=", "|=": "&=", "&=": "|="}
RELATIONS = {"<", "<=", ">", ">=", "==", "!="}
# Nodes below which the compiler wants constants or types, or evaluates nothing.
CONSTANT = {"template_argument_list", "static_assert_declaration", "array_declarator", "enumerator", "bitfield_clause", "noexcept",
            "requires_clause", "requires_expression", "sizeof_expression", "decltype", "alignas_qualifier", "attribute_declaration",
            "gnu_asm_expression", "concatenated_string", "preproc_if", "preproc_def", "preproc_function_def", "type_descriptor",
            "template_parameter_list", "user_defined_literal"}
SWITCH = "::marlin_mutation::on"
LONGEST_TEXT = 96

_parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


@dataclasses.dataclass
class Edit:
    file: str         # relative to the project
    function: str     # the declarator's name, as written
    kind: str         # relation, arithmetic, logic, term, negation, constant, statement, return, arguments
    line: int
    begin: int        # bytes of the original that it replaces
    end: int
    replacement: str  # "" drops a statement
    text: str         # "original -> replacement", for the reader; with file and function it names the edit
    number: int = -1

    @property
    def key(self):
        return f"{self.file}\n{self.function}\n{self.text}"


def _one_line(code):
    return re.sub(r"\s+", " ", code).strip()


def _short(code):
    line = _one_line(code)
    return line if len(line) <= LONGEST_TEXT else line[:LONGEST_TEXT - 3] + "..."


class _Finder:
    def __init__(self, file, source):
        self.file = file
        self.source = source
        self.edits = []
        self.function = None

    def code(self, node):
        return self.source[node.start_byte:node.end_byte].decode()

    def add(self, node, kind, replacement, original=None):
        whole = self.code(node)
        replacement = _one_line(replacement)
        if re.search(r"//|/\*|\n\s*#", whole):  # a comment or a directive would end elsewhere on one line
            return
        shown = f"{_short(original or whole)} -> {_short(replacement)}" if replacement else f"drop: {_short(whole)}"
        self.edits.append(Edit(self.file, self.function, kind, node.start_point[0] + 1, node.start_byte, node.end_byte,
                               replacement, shown))

    # --- where nothing is planted

    def is_constant(self, node):
        if node.type in CONSTANT or node.is_error or node.is_missing:
            return True
        parent = node.parent
        if parent is not None:
            if parent.type == "case_statement" and parent.child_by_field_name("value") == node:
                return True
            if parent.type == "if_statement" and node.type == "condition_clause":
                return any(child.type == "constexpr" for child in parent.children)
        if node.type in ("declaration", "function_definition"):
            words = [self.code(child) for child in node.children if child.type in ("type_qualifier", "storage_class_specifier")]
            return any(word in ("constexpr", "consteval", "static") for word in words) and (
                node.type == "declaration" or any(word.startswith("const") for word in words))
        return False

    def name_of(self, function):
        node = function.child_by_field_name("declarator")
        while node is not None and node.type != "function_declarator":
            node = node.child_by_field_name("declarator") or next((c for c in node.named_children if "declarator" in c.type), None)
        node = node.child_by_field_name("declarator") if node is not None else None
        return _one_line(self.code(node)) if node is not None else "?"

    def visit(self, node):
        if self.is_constant(node):
            return
        outer = self.function
        if node.type == "function_definition":
            if outer is None:
                self.function = self.name_of(node)
            body = node.child_by_field_name("body")
            lists = [child for child in node.children if child.type == "field_initializer_list"]
            children = lists + ([body] if body is not None else [])
        else:
            children = node.children
        if self.function is not None:
            plant = getattr(self, "plant_" + node.type, None)
            if plant:
                plant(node)
        for child in children:
            self.visit(child)
        self.function = outer

    # --- the operators, one method for each type of node

    def plant_binary_expression(self, node):
        left, operator, right = node.child_by_field_name("left"), node.child_by_field_name("operator"), node.child_by_field_name("right")
        sign = self.code(operator)
        if sign not in OTHER_OPERATOR:
            return
        a, b = self.code(left), self.code(right)
        kind = "relation" if sign in RELATIONS else "logic" if sign in ("&&", "||") else "arithmetic"
        other = OTHER_OPERATOR[sign]
        if kind == "logic":  # keep the grouping of the terms
            self.add(node, kind, f"({a}) {other} ({b})")
            self.add(node, "term", a)
            self.add(node, "term", b)
        else:
            self.add(node, kind, f"{a} {other} {b}")

    def plant_condition_clause(self, node):
        value = node.child_by_field_name("value")
        if node.parent.type == "if_statement" and value is not None and value.type not in ("declaration", "binary_expression"):
            self.add(value, "negation", f"!({self.code(value)})")

    def plant_conditional_expression(self, node):
        condition = node.child_by_field_name("condition")
        if condition.type != "binary_expression":
            self.add(condition, "negation", f"!({self.code(condition)})")

    def plant_number_literal(self, node):
        self.add(node, "constant", f"{self.code(node)} + 1")

    def plant_expression_statement(self, node):
        if not node.named_children or node.parent.type == "lambda_expression":
            return
        child = node.named_children[0]
        if ".reserve(" in self.code(child):  # which only saves time
            return
        if child.type in ("assignment_expression", "update_expression") or (
                child.type == "call_expression" and not self.code(child).startswith("MARLIN_ASSIGN")):
            self.add(node, "statement", "")

    def plant_assignment_expression(self, node):
        sign = self.code(node.child_by_field_name("operator"))
        if sign in OTHER_OPERATOR:
            a, b = self.code(node.child_by_field_name("left")), self.code(node.child_by_field_name("right"))
            self.add(node, "arithmetic", f"{a} {OTHER_OPERATOR[sign]} {b}")

    def plant_if_statement(self, node):
        body = node.child_by_field_name("consequence")
        if node.child_by_field_name("alternative") is not None or body is None:
            return
        if body.type == "compound_statement" and len(body.named_children) == 1:
            body = body.named_children[0]
        if body.type == "return_statement":
            self.add(body, "return", "")

    def plant_call_expression(self, node):
        arguments = node.child_by_field_name("arguments")
        name = self.code(node.child_by_field_name("function"))
        if arguments is None or arguments.type != "argument_list" or re.match(r"std::(max|min|gcd|swap)\b", name):
            return
        values = [child for child in arguments.named_children if child.type != "comment"]
        for i, (a, b) in enumerate(zip(values, values[1:])):
            if a.type == b.type and a.type in ("identifier", "field_expression", "call_expression", "binary_expression"):
                exchanged = [self.code(value) for value in values]
                exchanged[i], exchanged[i + 1] = exchanged[i + 1], exchanged[i]
                if exchanged[i] != exchanged[i + 1]:
                    self.add(node, "arguments", f"{name}({', '.join(exchanged)})")


def find(file, source):
    """All edits of a source (bytes), those of equal names numbered."""
    finder = _Finder(file, source)
    finder.visit(_parser.parse(source).root_node)
    seen = {}
    for edit in finder.edits:
        seen[edit.key] = seen.get(edit.key, 0) + 1
        if seen[edit.key] > 1:
            edit.text += f" #{seen[edit.key]}"
    return finder.edits


def planted(source, edits, header):
    """(the copy with these edits behind their switches, [(begin, end, edit)] of their bytes in it)."""
    spans = {}
    for edit in edits:
        spans.setdefault((edit.begin, edit.end), []).append(edit)
    order = sorted(spans, key=lambda span: (span[0], -span[1]))
    out = bytearray()
    places = []

    def copy(begin, end, first):
        """Appends the original's bytes of [begin, end) with the edits of order[first:] that lie in it; the next edit's place."""
        at = begin
        while first < len(order) and order[first][0] < end:
            span = order[first]
            out.extend(source[at:span[0]])
            first = write(span, first + 1)
            at = span[1]
        out.extend(source[at:end])
        return first

    def write(span, first):
        own = spans[span]
        start = len(out)
        drops = [edit for edit in own if not edit.replacement]
        for edit in drops:
            out.extend(f"{{ if (!{SWITCH}({edit.number})) {{ ".encode())
        others = [edit for edit in own if edit.replacement]
        for edit in others:
            begin = len(out)
            out.extend(f"({SWITCH}({edit.number}) ? ({edit.replacement}) : ".encode())
            places.append((begin, len(out), edit))
        out.extend(b"(" if others else b"")
        first = copy(span[0], span[1], first)
        out.extend(b")" * (len(others) + bool(others)))
        out.extend(b" } }" * len(drops))
        places.extend((start, len(out), edit) for edit in own)
        return first

    out.extend(f'#include "{header}"\n#line 1\n'.encode())
    copy(0, len(source), 0)
    return bytes(out), places
