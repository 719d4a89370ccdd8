"""The judge of synthetic profiles: a closed inventory, a container of its own, and nothing of a driver's text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import composition_mssql_synthetic as tool
from tools import synthetic_server
from tools.synthetic_judge import INVENTORY, Case, Verdict, judge, junit, read_junit
from tools.synthetic_server import IMAGE, Disposable, Refusal

ROOT = Path(__file__).parents[2]


def _cases(profile: str, **outcomes: str) -> list[Case]:
    return [Case(case_id, outcomes.get(case_id, "passed")) for case_id in INVENTORY[profile]]


def _judged(profile: str, cases: list[Case], **changes: bool) -> Verdict:
    return judge(profile, cases, **{"cleaned": True, "unchanged": True, "stand_in": False, **changes})


def test_the_inventories_are_closed() -> None:
    assert {name: len(cases) for name, cases in INVENTORY.items()} == {
        "store": 7, "gate": 16, "trust": 9, "registration": 18
    }  # fmt: skip


@pytest.mark.parametrize("profile", INVENTORY)
def test_only_every_case_once_is_a_pass(profile: str) -> None:
    assert _judged(profile, _cases(profile)).status == "PASS"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda cases: cases[1:], "missing T1"),
        (lambda cases: [*cases, cases[0]], "duplicate T1"),
        (lambda cases: [*cases, Case("S1", "passed")], "foreign 1"),
        (lambda cases: [*cases, Case("", "passed")], "foreign 1"),
        (lambda cases: [*cases[:-1], Case("T9", "skipped")], "skipped T9"),
        (lambda cases: [*cases[:-1], Case("T9", "failed")], "failed T9"),
        (lambda cases: [], "missing T5"),
    ],
)
def test_a_missing_skipped_duplicate_foreign_or_failed_case_fails(
    spoil: Callable[[list[Case]], list[Case]], reason: str
) -> None:
    verdict = _judged("trust", spoil(_cases("trust")))
    assert verdict.status == "FAIL"
    assert reason in verdict.reasons


@pytest.mark.parametrize(("what", "reason"), [("cleaned", "cleanup"), ("unchanged", "source changed")])
def test_a_failed_cleanup_or_a_changed_source_fails(what: str, reason: str) -> None:
    verdict = _judged("gate", _cases("gate"), **{what: False})
    assert (verdict.status, verdict.reasons) == ("FAIL", (reason,))


def test_a_stand_in_is_never_a_pass() -> None:
    assert _judged("store", _cases("store"), stand_in=True).status == "STAND_IN"
    failed = _judged("store", _cases("store", S3="failed"), stand_in=True)
    assert (failed.status, failed.reasons) == ("FAIL", ("stand-in: no evidence of SQL Server", "failed S3"))
    assert tool.EXITS["STAND_IN"] != 0


RAW = b"""<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="c" name="n" time="1.26"><properties><property name="case" value="T1"/></properties></testcase>
<testcase classname="c" name="m"><properties><property name="case" value="T2"/></properties>
<failure message="DPONE_LEDGER_RULE: login secret_user">[SQL Server]The login 'secret_user' (17892) failed. (229) (SQLExec)
login_database_policy_assembly password=hunter2</failure></testcase>
<testcase classname="c" name="o"/>
<testcase classname="c" name="p"><properties><property name="case" value="T3&lt;x"/></properties><skipped/></testcase>
</testsuite></testsuites>"""


def test_nothing_of_a_drivers_text_is_kept() -> None:
    cases = read_junit(RAW)
    assert [(c.case_id, c.outcome) for c in cases] == [
        ("T1", "passed"),
        ("T2", "failed"),
        ("", "passed"),
        ("", "skipped"),
    ]
    assert cases[1].sql_errors
    assert cases[1].words == ("DPONE_LEDGER_RULE", "login_database_policy_assembly")
    kept = junit("trust", _judged("trust", cases)).decode()
    assert not any(word in kept for word in ("secret_user", "hunter2", "SQLExec", "failed."))
    assert 'name="T2"' in kept
    assert kept.count('name="foreign"') == 2


def _in_files(profile: str) -> list[str]:
    """The case ids the tests of a profile carry; a test without one counts as empty."""
    path = ROOT / "tests" / "live_mssql" / f"test_{profile}.py"
    found = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = [ast.unparse(decorator) for decorator in node.decorator_list]
            assert not any("parametrize" in mark or "skip" in mark for mark in marks)
            found += re.findall(r"pytest\.mark\.case\('(\w+)'\)", " ".join(marks)) or [""]
    return found


@pytest.mark.parametrize("profile", list(INVENTORY))
def test_every_case_of_the_inventory_has_its_one_test(profile: str) -> None:
    assert sorted(_in_files(profile)) == sorted(INVENTORY[profile])


class FakeDocker:
    """Answers docker commands; remembers them."""

    def __init__(self, **answers: str | Exception) -> None:
        self.commands: list[list[str]] = []
        digest = IMAGE.partition("@")[2]
        self.answers: dict[str, str | Exception] = {
            "image": f"mcr@{digest}|linux/amd64", "run": "c0ffee", "port": "127.0.0.1:49321"
        } | answers  # fmt: skip

    def __call__(self, arguments: list[str]) -> str:
        self.commands.append(arguments)
        answer = self.answers.get(arguments[0], "")
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_server.platform, "system", lambda: "Linux")
    monkeypatch.setattr(synthetic_server.platform, "machine", lambda: "x86_64")


def test_the_container_is_pinned_bounded_and_on_the_loopback_only() -> None:
    fake = FakeDocker()
    server = Disposable.start(fake)
    [run] = [c for c in fake.commands if c[0] == "run"]
    assert run[-1] == IMAGE
    assert re.fullmatch(r".+:2022-[^@]+@sha256:[0-9a-f]{64}", IMAGE)
    assert {"127.0.0.1::1433", "4g", "linux/amd64"} <= set(run)
    assert not any("PASSWORD" in argument for argument in run)
    assert "127.0.0.1,49321" in server.dsn
    assert not Path(run[run.index("--env-file") + 1]).exists()
    assert server.remove()


@pytest.mark.parametrize("answers", [{"ps": "c0ffee"}, {"rm": Refusal("docker rm failed")}])
def test_what_is_not_proved_gone_is_not_cleaned(answers: dict[str, str | Exception]) -> None:
    assert not Disposable.start(FakeDocker(**answers)).remove()


@pytest.mark.parametrize("inspected", ["mcr@sha256:0000|linux/amd64", f"x@{IMAGE.partition('@')[2]}|linux/arm64"])
def test_another_image_is_refused(inspected: str) -> None:
    with pytest.raises(Refusal, match="pinned"):
        Disposable.start(FakeDocker(image=inspected))


def test_a_container_without_a_port_is_removed() -> None:
    fake = FakeDocker(port=Refusal("docker port failed"))
    with pytest.raises(Refusal):
        Disposable.start(fake)
    assert ["rm", "--force", "--volumes", "c0ffee"] in fake.commands


def test_the_output_is_a_new_directory_outside_the_checkout(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="inside"):
        tool.new_directory(ROOT / "build" / "synthetic")
    with pytest.raises(Refusal, match="exists"):
        tool.new_directory(tmp_path)
    inside = tmp_path / "link"
    inside.symlink_to(ROOT)
    with pytest.raises(Refusal, match="inside"):
        tool.new_directory(inside / "out")
    assert tool.new_directory(tmp_path / "new" / "deep").is_dir()
