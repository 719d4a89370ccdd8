"""Trust on SQL Server: the nine cases of the profile of that name, one function each."""

from __future__ import annotations

import pytest

from tests import authority_trust_cases as cases
from tests.authority_world import AuthorityWorld


@pytest.mark.case("T1")
def test_documents_are_read_back_to_the_byte(authority: AuthorityWorld) -> None:
    cases.documents_are_read_back_to_the_byte(authority)


@pytest.mark.case("T2")
def test_history_is_only_ever_appended_to(authority: AuthorityWorld) -> None:
    cases.history_is_only_ever_appended_to(authority)


@pytest.mark.case("T3")
def test_a_policy_that_came_and_went_and_came_again_is_another(authority: AuthorityWorld) -> None:
    cases.a_policy_that_came_and_went_and_came_again_is_another(authority)


@pytest.mark.case("T4")
def test_concurrent_writers_of_one_revision_have_one_winner(authority: AuthorityWorld) -> None:
    cases.concurrent_writers_of_one_revision_have_one_winner(authority)


@pytest.mark.case("T5")
def test_the_database_takes_no_invalid_row(authority: AuthorityWorld) -> None:
    cases.the_database_takes_no_invalid_row(authority)


@pytest.mark.case("T6")
def test_nothing_is_read_while_the_schema_is_altered(authority: AuthorityWorld) -> None:
    cases.nothing_is_read_while_the_schema_is_altered(authority)


@pytest.mark.case("T7")
def test_trust_decides_only_in_the_transaction_that_holds_the_lock(authority: AuthorityWorld) -> None:
    cases.trust_decides_only_in_the_transaction_that_holds_the_lock(authority)


@pytest.mark.case("T8")
def test_a_read_that_could_not_be_finished_returns_nothing(authority: AuthorityWorld) -> None:
    cases.a_read_that_could_not_be_finished_returns_nothing(authority)


@pytest.mark.case("T9")
def test_a_provisioner_adds_and_reads_and_nothing_else(authority: AuthorityWorld) -> None:
    cases.a_provisioner_adds_and_reads_and_nothing_else(authority)
