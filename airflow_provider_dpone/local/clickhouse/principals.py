"""Users and quotas of the local server: kept durably, authenticated, and asked for rights. Parses no statements."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from airflow_provider_dpone.local.clickhouse.access import Need
from airflow_provider_dpone.local.clickhouse.errors import ServerError, denied, not_implemented
from airflow_provider_dpone.local.clickhouse.grants import WITH_OPTION, GrantRow, Grants, Privileges

ADMINISTRATOR = "default"
_LOOPBACK = ("127.0.0.0/8", "::1/128")


def _sha256(password: str, salt: str) -> str:
    return hashlib.sha256((password + salt).encode()).hexdigest()


def _double_sha1(password: str, salt: str) -> str:
    return hashlib.sha1(hashlib.sha1(password.encode()).digest()).hexdigest()


#: what a password proves, per kind of authentication; the result is what is kept of it
_PROOFS: dict[str, Callable[[str, str], str]] = {
    "no_password": lambda password, salt: "",
    "plaintext_password": lambda password, salt: password,
    "sha256_password": _sha256,
    "double_sha1_password": _double_sha1,
}


@dataclass
class SettingElement:
    """One element of a user's SETTINGS: a value and what may be done to it."""

    name: str
    value: str | None = None
    min: str | None = None
    max: str | None = None
    const: bool = False


@dataclass
class User:
    """One principal. ``id`` is random at creation, so a name created anew is another principal."""

    name: str
    id: str
    storage: str = "local_directory"
    auth_type: str = "no_password"
    secret: str = ""
    salt: str = ""
    valid_until: int | None = None
    hosts: list[str] = field(default_factory=lambda: ["::/0"])
    default_database: str = ""
    grantees_any: bool = True
    settings: list[SettingElement] = field(default_factory=list)
    grants: Grants = field(default_factory=lambda: Grants(Privileges(())), repr=False)

    @property
    def is_administrator(self) -> bool:
        return self.storage == "users_xml"

    def set_password(self, kind: str, password: str, salt: str) -> None:
        """Take a password (or, for kinds named ..._hash, what is kept of one)."""
        kept = kind.endswith("_hash")
        self.auth_type = kind.replace("_hash", "_password")
        if self.auth_type not in _PROOFS:
            raise not_implemented(f"authentication with {kind}")
        self.salt = salt
        self.secret = password.lower() if kept else _PROOFS[self.auth_type](password, salt)

    def verify(self, password: str, address: str, now: float) -> bool:
        """Whether this password from this address opens a session now."""
        proof = _PROOFS.get(self.auth_type)
        if proof is None or not hmac.compare_digest(proof(password, self.salt).encode(), self.secret.encode()):
            return False
        return self._host_allowed(address) and (self.valid_until is None or now <= self.valid_until)

    def _host_allowed(self, address: str) -> bool:
        client = ipaddress.ip_address(address)
        for network in (ipaddress.ip_network(host) for host in self.hosts):
            if network.prefixlen == 0 or (network.version == client.version and client in network):
                return True
        return False

    def require(self, needs: Iterable[Need], option: bool = False) -> None:
        """Raise ACCESS_DENIED for the first privilege this user lacks."""
        for need in needs:
            if not self.grants.allows(need.privilege, need.database, need.table, option):
                raise denied(self.name, need.privilege, need.scope)

    def check_settings(self, changes: dict[str, str]) -> None:
        """Refuse changes that a CONST, a MIN or MAX or readonly mode forbids."""
        elements = {element.name: element for element in self.settings}
        readonly = elements.get("readonly", SettingElement("readonly", "0")).value or "0"
        for name, value in changes.items():
            element = elements.get(name)
            if element is not None and element.value == value:
                continue
            if element is not None and element.const:
                raise ServerError(452, f"Setting {name} should not be changed")
            if readonly == "1" or (readonly == "2" and name == "readonly"):
                raise ServerError(164, f"Cannot modify '{name}' setting in readonly mode")
            for bound, text in ((element.min, "less"), (element.max, "greater")) if element else ():
                if bound is not None and _beyond(value, bound, text):
                    raise ServerError(452, f"Setting {name} shouldn't be {text} than {bound}")


def _beyond(value: str, bound: str, text: str) -> bool:
    try:
        return float(value) < float(bound) if text == "less" else float(value) > float(bound)
    except ValueError:
        raise ServerError(36, f"Cannot compare setting value {value} with {bound}") from None


@dataclass
class Interval:
    seconds: int
    max_queries: int | None


@dataclass
class Quota:
    name: str
    id: str
    keyed: bool
    intervals: list[Interval]
    to_all: bool = False
    to: list[str] = field(default_factory=list)
    to_except: list[str] = field(default_factory=list)

    def applies_to(self, user: User) -> bool:
        return user.id in self.to or (self.to_all and user.id not in self.to_except)


@dataclass
class Usage:
    """A running counter; like a server's it lives in memory and is forgotten at a restart."""

    start: int
    queries: int = 0


class PrincipalStore:
    """Users and quotas, each change committed to disk before it is visible.

    ``lock`` is what makes DROP USER a barrier: an access check holds it, and so does every change.
    """

    def __init__(self, path: Path, privileges: Privileges, admin_password: str) -> None:
        self.lock = threading.RLock()
        self.privileges = privileges
        self.users: dict[str, User] = {}
        self.quotas: dict[str, Quota] = {}
        self.usage: dict[tuple[str, str, int], Usage] = {}
        self.record_logins = False
        self.presented: dict[str, str] = {}
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE IF NOT EXISTS principal (kind TEXT, name TEXT, document TEXT, PRIMARY KEY (kind, name));"
        )
        for kind, document in self._db.execute("SELECT kind, document FROM principal").fetchall():
            loaded = json.loads(document)
            if kind == "user":
                user = self._load_user(loaded)
                self.users[user.name] = user
            else:
                quota = Quota(**{**loaded, "intervals": [Interval(**interval) for interval in loaded["intervals"]]})
                self.quotas[quota.name] = quota
        self._add_administrator(admin_password)

    def _add_administrator(self, password: str) -> None:
        secret = hashlib.sha256(password.encode()).hexdigest()
        grants = Grants(self.privileges, [GrantRow(["ALL"], "", "", WITH_OPTION)])
        self.users[ADMINISTRATOR] = User(
            name=ADMINISTRATOR,
            id=str(uuid.uuid5(uuid.NAMESPACE_DNS, ADMINISTRATOR)),
            storage="users_xml",
            auth_type="sha256_password",
            secret=secret,
            grants=grants,
        )

    def _load_user(self, document: dict[str, object]) -> User:
        rows = [GrantRow(*row) for row in document.pop("grants")]  # type: ignore[attr-defined]
        elements = [SettingElement(**element) for element in document.pop("settings")]  # type: ignore[attr-defined]
        return User(**document, settings=elements, grants=Grants(self.privileges, rows))  # type: ignore[arg-type]

    def authenticate(self, name: str, password: str, address: str) -> User:
        """The principal that opens with this password now, or AUTHENTICATION_FAILED with one text for every reason."""
        with self.lock:
            user = self.users.get(name)
        if user is None or not user.verify(password, address, time.time()):
            reason = "Authentication failed: password is incorrect, or there is no user with such name"
            raise ServerError(516, f"{name}: {reason}")
        if self.record_logins:
            self.presented[name] = password
        return user

    def current(self, principal: User) -> User:
        """The principal as it is now; UNKNOWN_USER once it was dropped, whatever bears its name today.

        A session opened before VALID UNTIL gets USER_EXPIRED after it.
        """
        user = self.users.get(principal.name)
        if user is None or user.id != principal.id:
            raise ServerError(192, "User has been dropped")
        if user.valid_until is not None and time.time() > user.valid_until:
            raise ServerError(720, "Authentication method used has expired")
        return user

    def user(self, name: str) -> User:
        if name not in self.users:
            raise ServerError(192, f"There is no user `{name}` in user directories")
        return self.users[name]

    def save_user(self, user: User) -> None:
        self._changeable(user)
        plain = {name: value for name, value in user.__dict__.items() if name not in ("settings", "grants")}
        settings = [asdict(element) for element in user.settings]
        self._write("user", user.name, {**plain, "settings": settings, "grants": user.grants.rows()})
        self.users[user.name] = user

    def drop_user(self, name: str) -> None:
        self._changeable(self.user(name))
        self._db.execute("DELETE FROM principal WHERE kind = 'user' AND name = ?", (name,))
        del self.users[name]

    def save_quota(self, quota: Quota) -> None:
        self._write("quota", quota.name, asdict(quota))
        self.quotas[quota.name] = quota

    def drop_quota(self, name: str) -> None:
        quota = self.quotas.get(name)
        if quota is None:
            raise ServerError(199, f"There is no quota `{name}` in user directories")
        self._db.execute("DELETE FROM principal WHERE kind = 'quota' AND name = ?", (name,))
        del self.quotas[name]
        self.usage = {key: usage for key, usage in self.usage.items() if key[0] != quota.id}

    def use_quota(self, user: User) -> None:
        """Count one query of ``user``; QUOTA_EXCEEDED when that is one too many."""
        now = int(time.time())
        with self.lock:
            for quota in self.quotas.values():
                if quota.applies_to(user):
                    for interval in quota.intervals:
                        self._use(quota, interval, user, now)

    def _use(self, quota: Quota, interval: Interval, user: User, now: int) -> None:
        key = quota.id, user.name if quota.keyed else "", interval.seconds
        start = now - now % interval.seconds
        usage = self.usage.get(key)
        if usage is None or usage.start != start:
            usage = self.usage[key] = Usage(start)
        usage.queries += 1
        if interval.max_queries is not None and usage.queries > interval.max_queries:
            raise ServerError(
                201,
                f"Quota for user `{user.name}` for {interval.seconds}s has been exceeded: queries = "
                f"{usage.queries}/{interval.max_queries}. Name of quota template: `{quota.name}`",
            )

    def forget_usage(self) -> None:
        with self.lock:
            self.usage.clear()

    def _changeable(self, user: User) -> None:
        if user.is_administrator or user.name == ADMINISTRATOR:
            raise ServerError(495, f"Cannot update user `{user.name}` in users_xml because this storage is readonly")

    def _write(self, kind: str, name: str, document: Mapping[str, object]) -> None:
        text = json.dumps(document, ensure_ascii=False)
        self._db.execute("INSERT OR REPLACE INTO principal VALUES (?, ?, ?)", (kind, name, text))


def host_networks(words: list[str]) -> list[str]:
    """Networks for the words of a HOST clause: ANY, NONE, LOCAL or an address."""
    networks: list[str] = []
    for word in words:
        if word == "ANY":
            networks.append("::/0")
        elif word == "LOCAL":
            networks += _LOOPBACK
        elif word != "NONE":
            try:
                networks.append(str(ipaddress.ip_network(word, strict=False)))
            except ValueError:
                raise ServerError(36, f"Cannot parse address {word}") from None
    return networks
