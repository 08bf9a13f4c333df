"""No unit test depends on how fast the machine is: it compares no measured time with a number, gives up on nothing that
a busy machine may still do, and waits for a condition where it would sleep."""

import ast
from collections.abc import Iterator, Mapping
from textwrap import dedent

import pytest

from tests.conftest import PATIENCE_S, START_TIMEOUT_S
from tests.house.repository import written

LEAST_PATIENCE_S = 30.0  # a time-out bounds a hang, and nothing else
# The markers of what `make unit` leaves out: these suites measure.
MEASURING = ("e2e", "chaos", "package", "engines", "compose", "deploy", "browser", "tools", "recipes")
CLOCKS = ("monotonic", "perf_counter", "time", "process_time")
LIVE = ("asyncio", "httpx", "socket", "subprocess", "threading")  # the modules by which others are waited for
WALL = "time.time()"  # of certificates and keys; no time-out is counted by it
WAITS = ("timeout", "wait_for", "eventually")
# What may look at a clock or sleep, by `path function`, and why no busy machine makes it fail.
ALLOWED = {
    "tests/gateway/test_gateway_server.py test_comments_end_with_the_first_token": "nothing may come meanwhile",
    "tests/gateway/test_promises.py test_the_same_body_of_the_same_tenant_is_the_same_request": "a told time passes",
    "tests/runtime/test_certificates.py test_a_good_certificate_tells_when_it_expires": "the numbers are days",
    "tests/runtime/test_certificates.py test_the_command_makes_what_is_missing_and_renews_what_ends": "these, too",
    "tests/worker/adapters/test_openai_http.py test_a_sample_is_as_old_as_its_request": "the answer takes as long",
    "tests/runtime/test_solver.py test_it_reads_lines_and_its_answer_and_cpu_time_are_returned": "CPU time is counted",
}  # fmt: skip

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Reader:
    """Reads one module. `found` has (name of the outermost function, line, what is wrong) of each finding."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[str, int, str]] = []
        self._numbers = {"PATIENCE_S": PATIENCE_S, "START_TIMEOUT_S": START_TIMEOUT_S}
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(name)], value=value):
                    number = self._number(value)
                    if number is not None:
                        self._numbers[name] = number
                case _:
                    pass
        self._read(tree, "", live=False, polling=False)

    def _read(self, parent: ast.AST, owner: str, *, live: bool, polling: bool) -> None:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, _Function):
                lives = live or isinstance(node, ast.AsyncFunctionDef) or any(map(_is_live, ast.walk(node)))
                self._read(node, owner or node.name, live=lives, polling=bool(owner))  # inside stands a stub's script
                continue
            told = None
            if isinstance(node, ast.Compare) and live:
                told = self._compared(node)
            elif (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Add)
                and _is_clock(node.left)
                and ast.unparse(node.left) != WALL
            ):
                told = self._hasty(node.right)
            elif isinstance(node, ast.Call):
                told = self._called(node, sleeps=owner.startswith("test_") and not polling)
            if told:
                self.found.append((owner, getattr(node, "lineno", 0), told))
            expected = isinstance(node, (ast.With, ast.AsyncWith)) and "raises" in ast.unparse(node.items[0])
            if not expected:
                self._read(node, owner, live=live, polling=polling or isinstance(node, ast.While))

    def _compared(self, node: ast.Compare) -> str | None:
        sides = [node.left, *node.comparators]
        for left, order, right in zip(sides, node.ops, sides[1:], strict=False):
            if isinstance(order, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
                for measured, number in ((left, right), (right, left)):
                    if _is_measured(measured) and self._number(number) not in (None, 0.0):  # a sign is no time
                        return f"a busy machine may fail `{ast.unparse(node)}`: compare orders, counts or events"
        return None

    def _called(self, node: ast.Call, *, sleeps: bool) -> str | None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "sleep" and sleeps and self._number(node.args[0]) != 0.0:
            return f"`{ast.unparse(node)}`: wait for a condition"
        waits = node.args[-1:] if name in WAITS and len(node.args) == 1 + (name != "timeout") else []
        waits += [each.value for each in node.keywords if each.arg == "timeout"]
        return next((told for told in map(self._hasty, waits) if told), None)

    def _hasty(self, limit: ast.expr) -> str | None:
        number = self._number(limit)
        if number is None or number >= LEAST_PATIENCE_S:
            return None
        return f"it gives up after `{ast.unparse(limit)}` s: allow {LEAST_PATIENCE_S:g} s or more"

    def _number(self, node: ast.expr) -> float | None:
        """The value of an expression of numbers and of the module's constants; None of any other."""
        try:
            value = eval(ast.unparse(node), {"__builtins__": {}}, self._numbers)
        except Exception:
            return None
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _is_clock(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(name), args=[]):
            return name in CLOCKS
        case _:
            return False


def _is_live(node: ast.AST) -> bool:
    """Whether a function with this node runs in real time. What has no such node lives in a time that it is told."""
    return _is_clock(node) or (isinstance(node, ast.Name) and node.id in LIVE)


def _is_measured(expression: ast.expr) -> bool:
    """Whether a clock or a name or key of a time is in it."""
    for node in ast.walk(expression):
        match node:
            case ast.Name(name) | ast.Attribute(attr=name) | ast.Constant(str(name)):
                if name.endswith(("_s", "_ms", "elapsed", "took")):
                    return True
            case _ if _is_clock(node):
                return True
    return False


def measures(tree: ast.Module) -> bool:
    """Whether all of a module belongs to a suite that measures: by its own marker."""
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    return any(f"pytest.mark.{name}" in mark for mark in marks for name in MEASURING if mark.startswith("pytestmark"))


def findings() -> Iterator[tuple[str, str]]:
    """(`path function`, what is wrong) of each finding in the unit tests and what they share."""
    for path, text in written(".py", below=("tests/",)):
        if path.split("/")[1] not in MEASURING:
            tree = ast.parse(text)
            if not measures(tree):
                yield from ((f"{path} {name}", f"line {line}: {told}") for name, line, told in Reader(tree).found)


def not_allowed(found: list[tuple[str, str]], allowed: Mapping[str, str]) -> list[str]:
    told = [f"{name}, {what}" for name, what in found if name not in allowed]
    return told + [f"{name}: take it off the list" for name in allowed if name not in {each for each, _ in found}]


def test_no_unit_test_depends_on_a_wall_time() -> None:
    assert not_allowed(list(findings()), ALLOWED) == []


PLANTED = """
    SHORT_S = 2.0
    async def test_asked(self):
        before_s = time.monotonic()
        record = await ask()
        assert {}
    def in_a_told_time(agent):
        assert agent.step(now_s=3.0).wait_s < 0.5
        agent.sleep(1.0)
"""


@pytest.mark.parametrize(
    "line",
    [
        "record['e2e_s'] >= 100 * 0.002", "0 < time.monotonic() - before_s < 5", "all(r.took < SHORT_S for r in told)",
        "await asyncio.wait_for(ask(), SHORT_S)", "await client.get(url, timeout=10)", "await eventually(ready, 5)",
        "await asyncio.sleep(0.1)", "time.monotonic() + 10", "[one for one in record if max(one.gaps_ms) <= 1e3]",
    ],
)  # fmt: skip
def test_what_depends_on_a_wall_time_is_found(line: str) -> None:
    (found,) = Reader(ast.parse(dedent(PLANTED.format(line)))).found
    assert found[:2] == ("test_asked", 6)
    assert not_allowed([("a.py f", found[2])], {}) == [f"a.py f, {found[2]}"]


@pytest.mark.parametrize(
    "line",
    [
        "0 <= record.queue_s <= record.ttft_s < time.monotonic() - before_s", "record.retries < 5",
        "await asyncio.wait_for(ask(), PATIENCE_S)", "await asyncio.sleep(0)", "await eventually(ready)",
        "time.time() + 10", "settings.timeout_s == 5.0",
    ],
)  # fmt: skip
def test_orders_counts_and_patience_are_fine(line: str) -> None:
    assert Reader(ast.parse(dedent(PLANTED.format(line)))).found == []


def test_what_is_expected_to_give_up_or_waits_for_a_condition_may_be_quick() -> None:
    source = (
        "async def test_a():\n with pytest.raises(TimeoutError):\n  await get(timeout=1)\n while f(): await sleep(1)"
    )
    assert Reader(ast.parse(source)).found == []


def test_a_suite_that_measures_is_known_by_its_marker() -> None:
    assert measures(ast.parse("pytestmark = [pytest.mark.chaos, pytest.mark.long]"))
    assert not measures(ast.parse("pytestmark = pytest.mark.long"))


def test_the_list_can_only_shrink() -> None:
    assert not_allowed([("a", "late")], {"a": "why"}) == []
    assert not_allowed([], {"a": "why"}) == ["a: take it off the list"]
