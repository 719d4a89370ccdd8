"""Registration of grants on SQL Server: the eighteen cases of the profile of that name, one function each."""

from __future__ import annotations

import pytest

from tests import authority_registration_cases as cases
from tests.authority_world import AuthorityWorld


@pytest.mark.case("R1")
def test_the_catalog_is_exactly_what_was_installed(authority: AuthorityWorld) -> None:
    cases.the_catalog_is_exactly_what_was_installed(authority)


@pytest.mark.case("R2")
def test_a_bundle_of_eight_mib_is_kept_to_the_byte(authority: AuthorityWorld) -> None:
    cases.a_bundle_of_eight_mib_is_kept_to_the_byte(authority)


@pytest.mark.case("R3")
def test_a_grant_cannot_be_changed_or_written_past_the_store(authority: AuthorityWorld) -> None:
    cases.a_grant_cannot_be_changed_or_written_past_the_store(authority)


@pytest.mark.case("R4")
def test_an_execution_grant_is_bound_once_and_may_be_repeated(authority: AuthorityWorld) -> None:
    cases.an_execution_grant_is_bound_once_and_may_be_repeated(authority)


@pytest.mark.case("R5")
def test_a_qualification_is_consumed_once(authority: AuthorityWorld) -> None:
    cases.a_qualification_is_consumed_once(authority)


@pytest.mark.case("R6")
def test_ceilings_are_kept_and_nothing_is_half_stored(authority: AuthorityWorld) -> None:
    cases.ceilings_are_kept_and_nothing_is_half_stored(authority)


@pytest.mark.case("R7")
def test_the_audit_reads_every_page(authority: AuthorityWorld) -> None:
    cases.the_audit_reads_every_page(authority)


@pytest.mark.case("R8")
def test_history_stays_readable_and_authorises_nothing(authority: AuthorityWorld) -> None:
    cases.history_stays_readable_and_authorises_nothing(authority)


@pytest.mark.case("R9")
def test_nothing_is_registered_outside_its_conditions(authority: AuthorityWorld) -> None:
    cases.nothing_is_registered_outside_its_conditions(authority)


@pytest.mark.case("R10")
def test_concurrent_qualifications_of_one_run_are_one(authority: AuthorityWorld) -> None:
    cases.concurrent_qualifications_of_one_run_are_one(authority)


@pytest.mark.case("R11")
def test_concurrent_executions_never_pass_a_ceiling(authority: AuthorityWorld) -> None:
    cases.concurrent_executions_never_pass_a_ceiling(authority)


@pytest.mark.case("R12")
def test_a_registration_broken_off_half_way_leaves_nothing(authority: AuthorityWorld) -> None:
    cases.a_registration_broken_off_half_way_leaves_nothing(authority)


@pytest.mark.case("R13")
def test_a_lost_acknowledgement_is_read_back_exactly(authority: AuthorityWorld) -> None:
    cases.a_lost_acknowledgement_is_read_back_exactly(authority)


@pytest.mark.case("R14")
def test_a_refused_commit_or_read_back_acknowledges_nothing(authority: AuthorityWorld) -> None:
    cases.a_refused_commit_or_read_back_acknowledges_nothing(authority)


@pytest.mark.case("R15")
def test_altered_memberships_are_found_and_admit_nothing(authority: AuthorityWorld) -> None:
    cases.altered_memberships_are_found_and_admit_nothing(authority)


@pytest.mark.case("R16")
def test_a_drifted_catalog_registers_nothing(authority: AuthorityWorld) -> None:
    cases.a_drifted_catalog_registers_nothing(authority)


@pytest.mark.needs("bulk import", "EXECUTE AS", "tokens of a login")
@pytest.mark.case("R17")
def test_a_restricted_login_is_restricted_because_it_is_refused(authority: AuthorityWorld) -> None:
    cases.a_restricted_login_is_restricted_because_it_is_refused(authority)


@pytest.mark.needs("options of a session that are enforced")
@pytest.mark.case("R18")
def test_session_options_are_enforced(authority: AuthorityWorld) -> None:
    cases.session_options_are_enforced(authority)
