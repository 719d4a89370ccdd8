"""The documentation is complete and its links lead somewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from airflow_provider_dpone import errors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_code_has_an_entry_that_says_what_to_do() -> None:
    text = (ROOT / "docs" / "codes.md").read_text()
    entries = dict(re.findall(r"^### (DPONE_[A-Z_]+)\n\n(.*?)(?=\n###|\n## |\Z)", text, re.S | re.M))
    codes = {
        c.code for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.DponeError)
    }  # fmt: skip
    assert set(entries) == codes
    assert all("**Do:**" in entry for entry in entries.values())


def test_codes_are_unique() -> None:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.DponeError)]
    assert len({c.code for c in classes}) == len(classes)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_public_names_can_be_imported() -> None:
    table = (ROOT / "docs" / "names.md").read_text()
    found = 0
    for names, module in re.findall(r"^\| (.+?) \| `(airflow_provider_dpone\.[a-z_.]+)` \|$", table, re.M):
        for name in re.findall(r"`([A-Z]\w+)`", names):
            assert hasattr(__import__(module, fromlist=[name]), name), f"{module}.{name}"
            found += 1
    assert found >= 15
