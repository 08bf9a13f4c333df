"""Draws mutants of a room's decisions: faults by cosmic-ray's operators, at places drawn by a seed."""

import ast
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ROOT / "services" / "hmas"
# Of cosmic-ray's replacements those that a person could write by mistake; `a + b` as `a << b` is found by anything.
BINARY = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Mul", "BitOr_BitAnd", "BitAnd_BitOr")
COMPARISONS = (
    "Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt", "Is_IsNot",
    "IsNot_Is",
)  # fmt: skip
OTHERS = (
    "AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop",
    "ReplaceUnaryOperator_USub_UAdd", "ReplaceUnaryOperator_Delete_Not",
)  # fmt: skip
OPERATORS = tuple(
    name
    for name in operator_names()
    if name.removeprefix("core/")
    in {
        *(f"ReplaceBinaryOperator_{pair}" for pair in BINARY),
        *(f"ReplaceComparisonOperator_{pair}" for pair in COMPARISONS),
        *OTHERS,
    }
)
Position = tuple[int, int]  # line from 1, column from 0


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the `occurrence`-th place in `path` where `operator` applies, on `line`."""

    path: Path
    operator: str
    occurrence: int
    line: int

    @property
    def module(self) -> str:
        parts = self.path.relative_to(PRODUCT.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def source(self) -> str:
        mutated = mutate_code(self.path.read_text(encoding="utf-8"), get_operator(self.operator)(), self.occurrence)
        assert mutated is not None, self
        return str(mutated)

    def told(self) -> str:
        """The mutated line beside what it was."""
        old, new = self.path.read_text(encoding="utf-8").splitlines(), self.source().splitlines()
        changed = next((pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]), ("", ""))
        name = self.path.relative_to(ROOT)
        operator = self.operator.removeprefix("core/")
        return f"{name}:{self.line} {operator}\n  - {changed[0].strip()}\n  + {changed[1].strip()}"


def files_of(room: str) -> list[Path]:
    """Returns the files that hold a room's decisions: its `agent`, or all of `laws` and `contracts`."""
    folder = PRODUCT / room
    agents = [folder] if room in ("laws", "contracts") else sorted(folder.rglob("agent"))
    found = sorted(path for agent in agents for path in agent.rglob("*.py"))
    if not found:
        raise SystemExit(
            f"no decisions in {folder.relative_to(ROOT)}: ROOM=worker, gateway, qos, ..., laws or contracts"
        )
    return found


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yields every mutant of a file, but for those outside functions (defaults are settings, not decisions), and in
    annotations, in messages of errors and in `__repr__`."""
    source = path.read_text(encoding="utf-8")
    inside, outside = _spans(ast.parse(source))
    nodes = list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator, occurrence = get_operator(name)(), 0
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                if any(a <= start < b for a, b in inside) and not any(a <= start < b for a, b in outside):
                    yield Mutant(path, name, occurrence, start[0])
                occurrence += 1


def draw(paths: Sequence[Path], number: int, seed: int) -> list[Mutant]:
    """Returns `number` mutants of the files, at most one a line, so that a line with many operators weighs no more."""
    found = [mutant for path in paths for mutant in mutants_of(path)]
    lines: dict[tuple[Path, int], list[Mutant]] = {}
    for mutant in found:
        lines.setdefault((mutant.path, mutant.line), []).append(mutant)
    source = random.Random(seed)
    places = source.sample(sorted(lines), min(number, len(lines)))
    return [source.choice(lines[place]) for place in places]


def _spans(tree: ast.Module) -> tuple[list[tuple[Position, Position]], list[tuple[Position, Position]]]:
    """Returns where functions' bodies are, and which parts of them are no decisions."""
    inside: list[tuple[Position, Position]] = []
    outside: list[tuple[Position, Position]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            (outside if node.name == "__repr__" else inside).append((_span(node.body[0])[0], _span(node.body[-1])[1]))
        elif isinstance(node, ast.Lambda):
            inside.append(_span(node.body))
        outside.extend(_span(part) for part in _undecided(node))
    return inside, outside


def _undecided(node: ast.AST) -> Iterable[ast.expr]:
    match node:
        case ast.keyword(arg="strict"):  # of zip: it asserts
            return [node.value]
        case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
            return [annotation]
        case ast.FunctionDef(returns=ast.expr() as returns):
            return [returns]
        case ast.Raise(exc=ast.Call(args=args)):
            return args
        case ast.Assert(msg=ast.expr() as message):
            return [message]
    return []


def _span(node: ast.stmt | ast.expr) -> tuple[Position, Position]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
