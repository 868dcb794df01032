"""How scripts of tests tell what they found: a line "passed NAME", "FAILED NAME: why" or "skipped NAME: why" for each test.

A test is a function of a scratch folder that raises when something is wrong. What it returns, if anything, is said behind its name.
"""
import pathlib
import tempfile

TESTS = []


class Skip(Exception):
    """Why a test cannot run here."""


def test(function):
    TESTS.append((function.__name__.replace("_", " "), function))
    return function


def expect(holds, otherwise):
    if not holds:
        raise AssertionError(otherwise)


def run_tests(tests=TESTS):
    """Of each test a name, a function, and what it takes beside the folder; returns how many failed."""
    failed = 0
    for name, function, *arguments in tests:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                found = function(pathlib.Path(scratch), *arguments)
                print(f"passed {name}" + (f": {found}" if found else ""), flush=True)
            except Skip as why:
                print(f"skipped {name}: {why}", flush=True)
            except Exception as error:  # whatever it is, the others are still to run
                failed += 1
                print(f"FAILED {name}: {type(error).__name__}: {error}".replace("\n", " | "), flush=True)
    return failed
