"""`dpone-airflow authority` on a ledger behind an Airflow connection, and the attempts it lets run."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from airflow_provider_dpone.cli import main
from airflow_provider_dpone.errors import GrantMissing
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.history import history
from tests.ledger_database import LedgerDatabase
from tests.snapshot_world import SnapshotWorld

POLICY = """
grants_required: true
signers:
  - key: |
{key}
    phases: [execution, qualification]
max_workloads: 8
max_window_seconds: 7200
ceilings: {{max_attempts: 5, max_rows: 100000, max_source_bytes: 104857600, max_attempt_seconds: 900}}
"""


class Commands:
    """The command line as a person with files in a folder uses it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "signer.pem").write_bytes(pem)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        indented = "\n".join("      " + line for line in public.splitlines())
        (folder / "policy.yaml").write_text(POLICY.format(key=indented))
        (folder / "bundle").write_bytes(b"what the signer saw")

    def __call__(self, *arguments: str, status: int = 0) -> str:
        placed = [a.replace("@", f"{self.folder}/") for a in arguments]
        assert main(["authority", *placed]) == status
        out = self._capsys.readouterr()
        return out.out if status == 0 else out.err

    def sign(self, output: str, *more: str, status: int = 0) -> str:
        return self(
            "grant", "sign", "--environment", "test", "--campaign", str(uuid.uuid4()), "--bundle", "@bundle",
            "--key", "@signer.pem", "--output", output, *more, status=status,
        )  # fmt: skip


@pytest.fixture
def commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(tmp_path, capsys)


@pytest.fixture
def orders(world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch) -> SnapshotWorld:
    world.pg("CREATE TABLE orders (id bigint NOT NULL)")
    world.pg("INSERT INTO orders VALUES (1), (2)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64) ENGINE = MergeTree ORDER BY id")
    world.declared_source_bytes = 1 << 20
    world.activate("orders")
    _connections(world.ledger, monkeypatch)
    return world


def _connections(database: LedgerDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, login, password in (
        ("DPONE_CONTROL", database.runtime_role, database.runtime_password),
        ("DPONE_CONTROL_ADMIN", database.admin_role, database.admin_password),
    ):
        value = {"conn_type": "postgres", "host": database.host, "port": database.port, "login": login,
                 "password": password, "schema": database.dbname}  # fmt: skip
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(value))


def test_without_a_grant_nothing_is_reserved_and_with_one_it_runs(orders: SnapshotWorld, commands: Commands) -> None:
    assert "would become" in commands("trust", "set", "--environment", "test", "--policy", "@policy.yaml",
                                      "--replaces", "none", "--dry-run")  # fmt: skip
    assert "DPONE_TRUST_MISSING" in commands("trust", "show", "--environment", "test", status=1)
    commands("trust", "set", "--environment", "test", "--policy", "@policy.yaml", "--replaces", "none")
    store = CompositionAttemptStore(orders.ledger.runtime())
    with pytest.raises(GrantMissing, match="none is registered"):
        orders.cell("orders").run()
    assert store.latest(5) == []
    assert "would sign" in commands.sign("@grant.json", "--phase", "execution", "--dry-run")
    assert not (commands.folder / "grant.json").exists()
    assert "signed" in commands.sign("@grant.json", "--phase", "execution")
    assert "DPONE_DOCUMENT_INVALID" in commands.sign("@grant.json", "--phase", "execution", status=1)  # never over it
    register = ("grant", "register", "--grant", "@grant.json", "--bundle", "@bundle")
    assert "would register" in commands(*register, "--dry-run")
    assert commands("grant", "show") == "0 grants\n"
    assert "registered execution grant" in commands(*register)
    assert "registered execution grant" in commands(*register)
    assert "usable" in commands("grant", "show", "--environment", "test")
    orders.cell("orders").run()
    [stored] = store.latest(5)
    assert any(line.startswith("grant ") for line in history(orders.ledger.runtime(), stored))


def test_a_policy_names_the_one_it_replaces(orders: SnapshotWorld, commands: Commands) -> None:
    put = ("trust", "set", "--environment", "test", "--policy", "@policy.yaml", "--json", "--replaces")
    first = json.loads(commands(*put, "none"))
    assert "DPONE_TRUST_CHANGED" in commands(*put, "none", status=1)
    (commands.folder / "policy.yaml").write_text("revocation_epoch: 1\n")
    second = json.loads(commands(*put, first["sha256"]))
    assert second["policy"]["signers"] == first["policy"]["signers"]
    assert "DPONE_TRUST_CHANGED" in commands(*put, first["sha256"], status=1)
    (commands.folder / "policy.yaml").write_text("revocation_epoch: 0\n")
    assert "DPONE_TRUST_REFUSED" in commands(*put, second["sha256"], status=1)
    (commands.folder / "policy.yaml").write_text("grants_demanded: true\n")
    assert "grants_demanded" in commands(*put, second["sha256"], status=1)
    history_of = json.loads(commands("trust", "show", "--environment", "test", "--history", "--json"))
    assert [p["sha256"] for p in history_of] == [first["sha256"], second["sha256"]]


def test_a_grant_above_what_its_workload_declares_or_the_policy_allows_is_refused(
    orders: SnapshotWorld, commands: Commands
) -> None:
    commands("trust", "set", "--environment", "test", "--policy", "@policy.yaml", "--replaces", "none")
    commands.sign("@low.json", "--phase", "execution", "--max-source-bytes", "1000")
    low = ("grant", "register", "--grant", "@low.json", "--bundle", "@bundle")
    assert "dag.orders declares max_source_bytes" in commands(*low, status=1)
    assert "max_attempts" in commands.sign("@a.json", "--phase", "execution", "--max-attempts", "6", status=1)
    assert "--run" in commands.sign("@a.json", "--phase", "qualification", status=1)
    commands.sign("@q.json", "--phase", "qualification", "--run", "r1")
    register = ("grant", "register", "--grant", "@q.json", "--bundle")
    (commands.folder / "other").write_bytes(b"not what the signer saw")
    assert "bundle" in commands(*register, "@other", status=1)
    assert json.loads(commands(*register, "@bundle", "--json"))["grant"]["subject"] == "r1"
    (commands.folder / "signer.pem").write_bytes(b"no key")
    assert "PEM" in commands.sign("@b.json", "--phase", "execution", status=1)
