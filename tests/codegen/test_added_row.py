"""A row that is added to ops.yaml: its oracle is the only other thing to write, and it is run."""

from __future__ import annotations

import pytest
from trees import copy_of_the_tree, run, skuda_in

TEST = "tests/conformance/test_every_operation.py"
ROW = """
  tripled_per_row:
    kind: activation.tripled
    doc: Three times x.
    inputs:
      x: T[*shape]
    outputs:
      output: T[*shape] = 3 * x
    backward:
      d_x: T[*shape] = 3 * d_output
"""
HEAD = """
from .binding import oracle
from .floats import FORMATS, compute_format, decode, encode, integer, multiply


def times(number, x, T):
    compute = compute_format(T)
    return encode(multiply(integer(number, compute), decode(x, FORMATS[T]), compute), FORMATS[T])

"""
RIGHT = """
@oracle
def tripled(x, *, T):
    return times(3, x, T)


@oracle
def tripled_backward(d_output, *, T):
    return times(3, d_output, T)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project with the row, generated."""
    tree = copy_of_the_tree(tmp_path_factory.mktemp("added"))
    with (tree / "ops.yaml").open("a") as spec:
        spec.write(ROW)
    before = {path: path.read_bytes() for path in (tree / "generated").rglob("*.*") if path.is_file()}
    done = skuda_in(tree, "generate")
    assert done.returncode == 0, done.stderr
    changed = {path.name for path, text in before.items() if path.read_bytes() != text}
    assert changed <= {"__init__.py", "__init__.pyi", "MANIFEST"}, "a row rewrites files of other rows"
    return tree


def checked(tree, oracle: str | None) -> tuple[int, str, int, str]:
    """Status and output of `skuda check`, and of the comparison of every operation with its oracle, of this one."""
    write(tree, oracle)
    check = skuda_in(tree, "check")
    compared = compare(tree)
    return check.returncode, check.stdout, compared.returncode, compared.stdout


def compare(tree):
    return run(tree, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "--all", TEST, "-k", "tripled")


def write(tree, oracle: str | None) -> None:
    path = tree / "tests" / "oracles" / "mine.py"
    path.unlink(missing_ok=True)
    if oracle is not None:
        path.write_text(HEAD + oracle)


@pytest.mark.turns(5)
def test_with_its_oracle_all_is_well(tree):
    status, out, compared, said = checked(tree, RIGHT)
    assert (status, compared) == (0, 0), out + said
    assert "2 passed" in said


@pytest.mark.turns(8)
def test_without_an_oracle_both_say_what_to_write(tree):
    status, out, compared, said = checked(tree, None)
    assert (status, compared) == (1, 1)
    for name in ("tripled", "tripled_backward"):
        longer = name.replace("tripled", "tripled_per_row")
        assert f"`{longer}` has no oracle: write `{longer}` or `{name}` under @oracle in " in out
        assert f"{longer} has no oracle: write `{longer}` or `{name}` under @oracle in a file of " in said


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise SystemExit(0)", "SystemExit"),
        ("return None", "the oracle tripled_backward gives for d_x None, expected"),
        ("return times(4, d_output, T)", "tripled_per_row_backward T=f32"),
        ("return [times(3, d_output, T)]", "the oracle tripled_backward gives for d_x ["),
        ("from .spans import ANY; return ANY", "the oracle says something of 0 of "),
    ],
)
def test_an_oracle_is_run(tree, body, reason):
    """One that is there and gives something else is not enough, in one direction of two."""
    wrong = RIGHT.replace("return times(3, d_output, T)", body)
    assert wrong != RIGHT
    write(tree, wrong)
    compared = compare(tree)
    assert compared.returncode == 1, compared.stdout
    assert reason in compared.stdout and "1 passed" in compared.stdout


@pytest.mark.turns(2)
def test_check_does_not_run_an_oracle(tree):
    """It looks for one of that name alone, whatever it does."""
    write(tree, RIGHT.replace("return times(3, d_output, T)", "raise SystemExit(1)"))
    check = skuda_in(tree, "check")
    assert check.returncode == 0, check.stdout


@pytest.mark.turns(2)
def test_a_wrong_formula_is_noticed(tree):
    """The oracle decides, not the row."""
    spec = tree / "ops.yaml"
    text = spec.read_text()
    try:
        spec.write_text(text.replace("= 3 * x", "= 3 * x + 0.001"))
        assert skuda_in(tree, "generate").returncode == 0
        write(tree, RIGHT)
        assert compare(tree).returncode == 1
    finally:
        spec.write_text(text)
        skuda_in(tree, "generate")
