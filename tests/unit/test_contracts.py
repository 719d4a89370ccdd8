"""Documents are strict and canonical; limits are sizes; publications move along their table only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_dpone.contracts.canonical import MAX_COUNTER, digest_of
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity, GuardEpoch, TaskCoordinates
from airflow_provider_dpone.contracts.limits import LimitsDocument, SnapshotLimits, parse_size
from airflow_provider_dpone.contracts.naming import split_table
from airflow_provider_dpone.contracts.publication import (
    CatalogObservation,
    Content,
    IssuedPrincipal,
    PublicationRecord,
    PublisherClosure,
    SnapshotIntent,
    SnapshotTarget,
    judge,
)
from airflow_provider_dpone.contracts.states import PUBLICATION_MOVES, PUBLICATION_REVISIONS, Family, PublicationState
from airflow_provider_dpone.errors import DeclarationInvalid, DocumentInvalid, LimitsInvalid

A, B, OTHER = (f"0000000{n}-0000-4000-8000-000000000000" for n in (1, 2, 3))
SHA = digest_of(b"x")


def coordinates(**changes: Any) -> TaskCoordinates:
    given_ = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 1, "max_tries": 0}
    return TaskCoordinates(**{**given_, "task_instance_id": A, **changes})


def attempt(**changes: Any) -> CompositionAttemptIdentity:
    return CompositionAttemptIdentity(
        **{
            "family": Family.NONPRODUCTION,
            "activation_sha256": SHA,
            "constituent": "native",
            "cell": "cell",
            "workload_id": "d.t",
            "pack_sha256": SHA,
            "plan_sha256": SHA,
            "coordinates": coordinates(),
            "guard_epochs": (GuardEpoch(guard_id=SHA, epoch=1),),
            **changes,
        }
    )


def intent(**changes: Any) -> SnapshotIntent:
    target = SnapshotTarget(
        service_id=OTHER, database_id=OTHER, database="mart", target_table="t", generation_table="g", guard_id=SHA,
        enrolment_sha256=SHA,
    )  # fmt: skip
    return SnapshotIntent(
        **{
            "family": Family.NONPRODUCTION,
            "activation_sha256": SHA,
            "attempt_sha256": SHA,
            "generation_sha256": SHA,
            "target": target,
            "old_target_uuid": A,
            "generation_uuid": B,
            "design_sha256": SHA,
            "content": Content(rows=3, row_sum="a" * 64),
            "parts_sha256": SHA,
            "limits": SnapshotLimits(max_source_bytes=1).effective(),
            "ingest": IssuedPrincipal(name="i", uuid=A),
            "publisher": IssuedPrincipal(name="p", uuid=B),
            "closed_ingest_sha256": SHA,
            **changes,
        }
    )


# --- canonical bytes -------------------------------------------------------------------------------------------

text = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=60)


@given(dag=text, run=text, task=text, index=st.integers(-1, 2**31 - 1), number=st.integers(1, MAX_COUNTER))
def test_canonical_bytes_round_trip(dag: str, run: str, task: str, index: int, number: int) -> None:
    document = coordinates(dag_id=dag, run_id=run, task_id=task, map_index=index, try_number=number)
    raw = document.wire()
    assert TaskCoordinates.parse(raw) == document
    assert document.digest() == digest_of(raw)
    assert json.loads(raw) == document.model_dump(mode="json")


@given(st.data())
def test_any_other_spelling_of_a_document_is_refused(data: st.DataObject) -> None:
    """White space, another order, an escape or one byte changed: never taken for the same document."""
    raw = attempt().wire()
    position = data.draw(st.integers(0, len(raw) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != raw[position]))
    changed = raw[:position] + bytes([byte]) + raw[position + 1 :]
    try:
        found = CompositionAttemptIdentity.parse(changed)
    except DocumentInvalid:
        return
    assert found != attempt()
    assert found.wire() == changed


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: {**d, "extra": 1},
        lambda d: {k: v for k, v in d.items() if k != "task_id"},
        lambda d: {**d, "try_number": 1.0},
        lambda d: {**d, "try_number": "1"},
        lambda d: {**d, "try_number": True},
        lambda d: {**d, "try_number": 0},
        lambda d: {**d, "try_number": MAX_COUNTER + 1},
        lambda d: {**d, "map_index": -2},
        lambda d: {**d, "task_id": ""},
        lambda d: {**d, "task_id": "a\nb"},
        lambda d: {**d, "task_id": "x" * 513},
        lambda d: {**d, "task_id": None},
        lambda d: {**d, "task_instance_id": "not-a-uuid"},
        lambda d: {**d, "task_instance_id": d["task_instance_id"].upper().replace("0", "A")},
        lambda d: {**d, "schema_name": "dpone.other.v1"},
    ],
)
def test_missing_unknown_and_impossible_members_are_refused(spoil: Any) -> None:
    members = json.loads(coordinates().wire())
    raw = json.dumps(spoil(members), sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(DocumentInvalid):
        TaskCoordinates.parse(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"a":1,"a":1}',
        b"\xff",
        coordinates().wire() + b" ",
        b" " + coordinates().wire(),
        coordinates().wire().replace(b'"dag_id":"d"', b'"dag_id":"d","dag_id":"d"'),
        coordinates().wire().replace(b'"d"', b'"\\u0064"'),
        coordinates().wire().replace(b'"d"', b'"\\ud800"'),
        coordinates().wire().replace(b'"max_tries":0', b'"max_tries":-0'),
        coordinates().wire().replace(b'"max_tries":0', b'"max_tries":0e0'),
        coordinates().wire().replace(b'"max_tries":0', b'"max_tries":NaN'),
    ],
)
def test_noncanonical_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(DocumentInvalid):
        TaskCoordinates.parse(raw)


def test_a_repeated_member_is_named() -> None:
    with pytest.raises(DocumentInvalid, match="repeats a member"):
        TaskCoordinates.parse(b'{"dag_id":"a","dag_id":"a"}')


def test_a_lone_surrogate_cannot_be_written() -> None:
    document = Content(rows=0, row_sum="0" * 64)
    object.__setattr__(document, "row_sum", "\ud800")
    with pytest.raises(DocumentInvalid):
        document.wire()


def test_sets_must_be_sorted_and_unique() -> None:
    one, two = (GuardEpoch(guard_id=g, epoch=1) for g in sorted((SHA, digest_of(b"y"))))
    assert attempt(guard_epochs=(one, two)).guard_epochs == (one, two)
    for wrong in ((two, one), (one, one), ()):
        with pytest.raises(ValueError, match=r"sorted and unique|at least 1"):
            attempt(guard_epochs=wrong)


def test_identity_differs_by_every_coordinate() -> None:
    """Run, task, map index, try and instance each make another attempt; so does each rendered value."""
    changed = [
        attempt(coordinates=coordinates(**{name: value}))
        for name, value in (
            ("dag_id", "e"), ("run_id", "s"), ("task_id", "u"), ("map_index", 0), ("try_number", 2), ("task_instance_id", B),
        )
    ]  # fmt: skip
    changed += [attempt(plan_sha256=digest_of(b"p")), attempt(pack_sha256=digest_of(b"p"))]
    assert len({a.digest() for a in [attempt(), *changed]}) == 9
    assert attempt().scheduler_key() != attempt(coordinates=coordinates(task_instance_id=B)).scheduler_key()


# --- limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "bytes_"),
    [("20 GiB", 20 * 2**30), ("500 MB", 500_000_000), ("1.5 KiB", 1536), (7, 7), ("1048576", 2**20), (" 2tib ", 2**41)],
)
def test_human_sizes(size: int | str, bytes_: int) -> None:
    assert parse_size(size) == bytes_


@pytest.mark.parametrize(
    "size",
    [0, -1, True, None, 1.5, "", "GiB", "0 B", "-1 MB", "1.0001 B", "1 XB", "9999999 TiB", "1 GiB extra", "١ GiB"],
)
def test_what_is_not_a_size_is_refused(size: Any) -> None:
    with pytest.raises(LimitsInvalid):
        parse_size(size)


@given(st.integers(1, MAX_COUNTER))
def test_every_ceiling_has_a_value(source: int) -> None:
    effective = SnapshotLimits(max_source_bytes=source).effective()
    assert LimitsDocument.parse(effective.wire()) == effective
    assert all(0 < value <= MAX_COUNTER for value in effective.model_dump(exclude={"schema_name"}).values())


@pytest.mark.parametrize(
    ("name", "parts"),
    [("mart.orders", ("mart", "orders")), ("mart.`a.b`", ("mart", "a.b")), ("`m``x`.t", ("m`x", "t"))],
)
def test_table_names(name: str, parts: tuple[str, str]) -> None:
    assert split_table(name) == parts


@pytest.mark.parametrize("name", ["orders", "a.b.c", ".", "a.", ""])
def test_other_table_names_are_refused(name: str) -> None:
    with pytest.raises(DeclarationInvalid):
        split_table(name)


# --- publication -----------------------------------------------------------------------------------------------


def closure(plan: SnapshotIntent) -> PublisherClosure:
    return PublisherClosure(intent_sha256=plan.digest(), closed_gates_sha256=SHA, quiescence_sha256=SHA)


def seen(plan: SnapshotIntent, **changes: Any) -> CatalogObservation:
    return CatalogObservation(
        **{
            "target": plan.target,
            "service_id": OTHER,
            "database_engine": "Atomic",
            "target_uuid": B,
            "generation_uuid": A,
            "target_design_sha256": SHA,
            "generation_design_sha256": SHA,
            "target_content": None,
            "generation_content": None,
            "target_parts_sha256": SHA,
            "generation_parts_sha256": digest_of(b"old"),
            "unsupported": (),
            "observed_at": "now",
            **changes,
        }
    )


@given(st.sampled_from(PublicationState), st.integers(1, 12))
def test_only_reachable_state_and_revision_pairs_exist(state: PublicationState, revision: int) -> None:
    plan = intent()
    done = state not in (PublicationState.PREPARED, PublicationState.EXCHANGE_INTENT)
    low, high = PUBLICATION_REVISIONS[state]
    make = {
        "intent_sha256": plan.digest(), "state": state, "revision": revision, "reason": None,
        "closure": closure(plan) if done else None, "observation": seen(plan) if done else None,
    }  # fmt: skip
    if revision < low or (high is not None and revision > high):
        with pytest.raises(ValueError, match="revision"):
            PublicationRecord(**make)
    else:
        assert PublicationRecord.parse(PublicationRecord(**make).wire()).state is state


@given(st.lists(st.sampled_from(PublicationState), min_size=1, max_size=6))
def test_records_move_along_the_table_only(path: list[PublicationState]) -> None:
    plan = intent()
    record = PublicationRecord(
        intent_sha256=plan.digest(),
        state=PublicationState.PREPARED,
        revision=1,
        closure=None,
        observation=None,
        reason=None,
    )
    for state in path:
        done = state not in (PublicationState.PREPARED, PublicationState.EXCHANGE_INTENT)
        found = {"closure": closure(plan), "observation": seen(plan)} if done else {}
        if state not in PUBLICATION_MOVES[record.state]:
            with pytest.raises(ValueError, match="cannot move"):
                record.next(state, **found)  # type: ignore[arg-type]
            return
        after = record.next(state, **found)  # type: ignore[arg-type]
        assert after.revision == record.revision + 1
        record = after


def test_a_terminal_record_needs_closure_and_observation() -> None:
    plan = intent()
    for state in (PublicationState.PUBLISHED, PublicationState.NOT_PUBLISHED):
        with pytest.raises(ValueError, match="needs a closure"):
            PublicationRecord(
                intent_sha256=plan.digest(), state=state, revision=3, closure=None, observation=None, reason=None
            )


SWAPPED: dict[str, Any] = {}
BACK = {
    "target_uuid": A,
    "generation_uuid": B,
    "target_parts_sha256": digest_of(b"old"),
    "generation_parts_sha256": SHA,
}
MERGED = digest_of(b"merged")
THERE = {"target_uuid": B, "generation_uuid": A, "target_parts_sha256": SHA}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        (SWAPPED, PublicationState.PUBLISHED),
        (BACK, PublicationState.NOT_PUBLISHED),
        ({"target_parts_sha256": MERGED, "target_content": intent().content}, PublicationState.PUBLISHED),
        ({"target_parts_sha256": MERGED, "target_content": None}, PublicationState.COMMIT_UNKNOWN),
        (
            {"target_parts_sha256": MERGED, "target_content": Content(rows=2, row_sum="a" * 64)},
            PublicationState.COMMIT_UNKNOWN,
        ),
        (BACK | {"generation_parts_sha256": MERGED}, PublicationState.COMMIT_UNKNOWN),
        ({"target_uuid": None}, PublicationState.COMMIT_UNKNOWN),
        ({"generation_uuid": None}, PublicationState.COMMIT_UNKNOWN),
        ({"target_uuid": OTHER}, PublicationState.COMMIT_UNKNOWN),
        ({"generation_uuid": OTHER}, PublicationState.COMMIT_UNKNOWN),
        ({"target_uuid": B, "generation_uuid": B}, PublicationState.COMMIT_UNKNOWN),
        ({"target_design_sha256": digest_of(b"d")}, PublicationState.COMMIT_UNKNOWN),
        ({"generation_design_sha256": None}, PublicationState.COMMIT_UNKNOWN),
        ({"unsupported": ("outgoing_view:x",)}, PublicationState.COMMIT_UNKNOWN),
        ({"database_engine": "Ordinary"}, PublicationState.COMMIT_UNKNOWN),
        ({"service_id": A}, PublicationState.COMMIT_UNKNOWN),
    ],
)
def test_only_a_complete_matching_observation_decides(changes: dict[str, Any], state: PublicationState) -> None:
    plan = intent()
    verdict = judge(plan, seen(plan, **changes))
    assert verdict.state is state
    assert (verdict.reason is None) == (state is not PublicationState.COMMIT_UNKNOWN)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, PublicationState.NOT_PUBLISHED),
        ({"unsupported": ("outgoing_view:x",)}, PublicationState.NOT_PUBLISHED),
        ({"target_design_sha256": digest_of(b"d")}, PublicationState.NOT_PUBLISHED),
        ({"generation_parts_sha256": MERGED}, PublicationState.NOT_PUBLISHED),
        ({"target_uuid": OTHER}, PublicationState.COMMIT_UNKNOWN),
        ({"generation_uuid": None}, PublicationState.COMMIT_UNKNOWN),
        ({"service_id": A}, PublicationState.COMMIT_UNKNOWN),
        (THERE | {"unsupported": ("outgoing_view:x",)}, PublicationState.COMMIT_UNKNOWN),
        (THERE, PublicationState.PUBLISHED),
    ],
)
def test_what_was_never_sent_is_not_published_while_a_and_b_are_in_place(
    changes: dict[str, Any], state: PublicationState
) -> None:
    """What appeared around the tables cannot be the doing of a statement of which no byte was sent; it is named."""
    plan = intent()
    verdict = judge(plan, seen(plan, **(BACK | changes)), never_sent=True)
    assert verdict.state is state
    assert (verdict.reason is None) == (changes in ({}, THERE))


def test_an_intent_needs_two_tables_and_two_principals() -> None:
    with pytest.raises(ValueError, match="two tables"):
        intent(generation_uuid=A)
    with pytest.raises(ValueError, match="two principals"):
        intent(publisher=IssuedPrincipal(name="i", uuid=B))


def test_the_query_id_follows_from_the_intent() -> None:
    assert intent().query_id() == intent().query_id() != intent(generation_sha256=digest_of(b"g")).query_id()
