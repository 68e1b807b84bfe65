"""A role that was granted what the command line prints, and nothing else, can do all that a client does."""

import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from holdfast import Holdfast, Settings, errors
from tests.e2e.support import holdfast, output

SETTINGS = Settings(sweep_every=None, history="all")


def does_what_clients_do(url):
    with Holdfast(url, settings=SETTINGS) as locks, Holdfast(url, settings=SETTINGS) as others:
        hands_over(locks, others)
        with locks.hold("shared", mode="shared"), others.hold("shared", mode="shared", timeout=0):
            pass
        with locks.semaphore("gpu", 2):
            locks.resize("gpu", 3, by="a test")
        assert locks.run_once("pull:model", lambda: "there") == "there"
        held = others.acquire("stuck", owner="somebody")
        locks.break_lock("stuck", reason="a test")
        with pytest.raises(errors.LeaseLost):
            held.release()
        locks.sweep()
        assert [event.kind for event in locks.watch("stuck", after=0, timeout=0)] == ["granted", "broken"]
        locks.offer(["job:1"])
        with locks.join("worker-7") as me, me.claim("job")[0]:
            pass
        assert locks.work("job:1").state == "completed"
        assert [each.name for each in locks.instances()] == ["worker-7"]


def hands_over(locks, others):
    lease = locks.acquire("nightly", owner="first")
    got = threading.Event()

    def wait():
        with others.hold("nightly", timeout=60):
            got.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not locks.inspect("nightly").waiting:
        time.sleep(0.01)
    lease.release()
    waiting.join(60)
    assert got.is_set()


@contextmanager
def postgres_role(server, name='app "quoted"'):
    role = f"{name} {uuid.uuid4().hex[:8]}"
    quoted = role.replace('"', '""')
    server.execute(f'CREATE ROLE "{quoted}" LOGIN')
    databases = [name for (name,) in server.execute("SELECT datname FROM pg_database WHERE datallowconn")]
    try:
        yield role
    finally:
        for database in databases:
            server.execute(f'DROP OWNED BY "{quoted}"', database)
        server.execute(f'DROP ROLE "{quoted}"')


def as_role(url, role):
    return url.replace("holdfast@", f"{quote(role)}@")


@pytest.mark.parametrize("option", ["", "?schema=locks&prefix=hf_"])
def test_a_postgresql_role_that_was_granted_what_is_printed_does_what_clients_do(
    postgres_server, postgres_url, option
):
    url = f"{postgres_url}{option}"
    database = urlsplit(url).path[1:]
    postgres_server.execute(f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")
    postgres_server.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC", database)
    output("schema", "apply", url)
    with postgres_role(postgres_server) as role:
        with pytest.raises(errors.StoreMisconfigured, match="holdfast schema grants ROLE URL"):
            Holdfast(as_role(url, role))
        for statement in output("schema", "grants", role, url).split(";\n"):
            if statement:
                postgres_server.execute(statement, database)
        does_what_clients_do(as_role(url, role))


def test_apply_grants_a_postgresql_role_where_the_tables_are(postgres_server, postgres_url):
    """Also where the url does not say so: then the search path does."""
    database = urlsplit(postgres_url).path[1:]
    postgres_server.execute("CREATE SCHEMA elsewhere AUTHORIZATION holdfast", database)
    postgres_server.execute(f"ALTER DATABASE {database} SET search_path = elsewhere")
    with postgres_role(postgres_server) as role:
        done = holdfast("schema", "apply", "--grant", role, postgres_url)
        assert (done.returncode, done.stdout) == (0, "version 3, up to date\n")
        assert done.stderr == f"holdfast: {role} may use them\n"
        assert holdfast("schema", "apply", "--grant", role, postgres_url).returncode == 0
        does_what_clients_do(as_role(postgres_url, role))


def test_what_is_granted_covers_partitions_that_are_made_later(postgres_server, postgres_url):
    with postgres_role(postgres_server) as role:
        assert holdfast("schema", "apply", "--grant", role, postgres_url).returncode == 0
        with Holdfast(postgres_url) as owner:
            owner.sweep()  # makes partitions for this week and the next ones
        database = urlsplit(postgres_url).path[1:]
        made = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'holdfast_history'::regclass"
        assert postgres_server.execute(made, database) == [(4,)]
        does_what_clients_do(as_role(postgres_url, role))


@contextmanager
def mariadb_account(server, name="app`s", host="%"):
    user = f"{name}{uuid.uuid4().hex[:8]}"
    account = f"`{user.replace('`', '``')}`@`{host}`"
    server.execute(f"CREATE USER {account}")
    try:
        yield user
    finally:
        server.execute(f"DROP USER {account}")


@pytest.mark.parametrize("host", ["%", "127.0.0.%"])
def test_a_mariadb_account_that_was_granted_what_is_printed_does_what_clients_do(
    mariadb_server, mariadb_url, host
):
    output("schema", "apply", mariadb_url)
    with mariadb_account(mariadb_server, host=host) as user:
        theirs = as_role(mariadb_url, user)
        with pytest.raises(errors.StoreMisconfigured, match="holdfast schema grants ACCOUNT URL") as refused:
            Holdfast(theirs)
        assert "1044" in str(refused.value)
        assert "password" not in str(refused.value)
        account = user if host == "%" else f"{user}@{host}"
        for statement in output("schema", "grants", account, mariadb_url).split(";\n"):
            if statement:
                mariadb_server.execute(statement)
        does_what_clients_do(theirs)


def test_apply_grants_a_mariadb_account(mariadb_server, mariadb_url):
    with mariadb_account(mariadb_server) as user:
        owner = mariadb_url.replace("holdfast@", "root@")
        done = holdfast("schema", "apply", owner, "--grant", user)
        assert (done.returncode, done.stdout) == (0, "version 1, up to date\n"), done.stderr
        does_what_clients_do(as_role(mariadb_url, user))


def test_mariadb_roles_can_be_granted_too(mariadb_server, mariadb_url):
    role = f"lockers_{uuid.uuid4().hex[:8]}"
    mariadb_server.execute(f"CREATE ROLE {role}")
    with mariadb_account(mariadb_server) as user:
        account = f"`{user.replace('`', '``')}`@`%`"
        mariadb_server.execute(f"GRANT {role} TO {account}")
        mariadb_server.execute(f"SET DEFAULT ROLE {role} FOR {account}")
        owner = mariadb_url.replace("holdfast@", "root@")
        assert holdfast("schema", "apply", owner, "--grant", role).returncode == 0
        does_what_clients_do(as_role(mariadb_url, user))
    mariadb_server.execute(f"DROP ROLE {role}")


def test_an_account_that_is_misspelt_is_not_made(mariadb_server, mariadb_url):
    nobody = f"nobody_{uuid.uuid4().hex[:8]}"
    owner = mariadb_url.replace("holdfast@", "root@")
    assert holdfast("schema", "apply", owner, "--grant", nobody).returncode != 0
    assert mariadb_server.execute(f"SELECT 1 FROM mysql.user WHERE user = '{nobody}'") == []


def test_an_account_with_rights_on_other_tables_is_told_that_it_has_none_on_ours(mariadb_server, mariadb_url):
    """The server does not list tables on which one has no right, so they seem to be missing."""
    output("schema", "apply", mariadb_url)
    database = urlsplit(mariadb_url).path[1:]
    mariadb_server.execute("CREATE TABLE other (n INT)", database)
    with mariadb_account(mariadb_server, name="app") as user:
        mariadb_server.execute(f"GRANT SELECT ON {database}.other TO {user}@'%'")
        with pytest.raises(errors.StoreMisconfigured, match="lacks a privilege"):
            Holdfast(as_role(mariadb_url, user))


def test_whoever_may_not_grant_is_told_what_is_missing(mariadb_server, mariadb_url):
    with mariadb_account(mariadb_server) as user:
        done = holdfast("schema", "apply", mariadb_url, "--grant", user)
        assert done.returncode == 79
        assert "the account lacks a privilege" in done.stderr


def test_the_role_of_a_lock_server_may_keep_access_tokens(postgres_server, postgres_url):
    with postgres_role(postgres_server) as role:
        assert holdfast("schema", "apply", "--grant", role, postgres_url).returncode == 0
        create = ["token", "create", "ci", "--allow", "observe:*", "--url", as_role(postgres_url, role)]
        refused = holdfast(*create)
        assert (refused.returncode, refused.stdout) == (79, "")
        assert holdfast("schema", "apply", "--grant", role, "--server", postgres_url).returncode == 0
        assert holdfast(*create).returncode == 0


def test_files_have_no_roles(url):
    for command in (["grants", "app"], ["apply", "--grant", "app"]):
        done = holdfast("schema", *command)
        assert (done.returncode, done.stdout) == (64, "")
        assert "files have no roles" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["grants"], "to whom?"),
        (["grants", "postgresql://db/app"], "to whom?"),
        (["grants", "", "postgresql://db/app"], "the role is ''"),
        (["status", "--grant", "app"], "--grant is for 'holdfast schema apply'"),
        (["status", "--server"], "--server is for"),
        (["grants", "app", "postgresql://a/b", "postgresql://c/d"], "give the url once"),
    ],
)
def test_what_makes_no_sense_is_refused(args, message):
    done = holdfast("schema", *args)
    assert (done.returncode, done.stdout) == (64, "")
    assert message in done.stderr


def test_grants_are_printed_without_asking_a_server():
    printed = output("schema", "grants", "app", "postgresql://nobody@127.0.0.1:1/app?schema=locks")
    assert printed.splitlines()[:3] == [
        'GRANT CONNECT ON DATABASE "app" TO "app";',
        'GRANT USAGE ON SCHEMA "locks" TO "app";',
        'GRANT SELECT, UPDATE ON "locks".holdfast_meta, "locks".holdfast_feed TO "app";',
    ]
    printed = output("schema", "grants", "app@10.%", "mysql://nobody@127.0.0.1:1/app")
    assert printed.splitlines()[0] == "GRANT SELECT, UPDATE ON `app`.holdfast_meta TO `app`@`10.%`;"


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_the_how_tos_show_what_is_printed(scheme):
    page = Path(__file__).parents[2] / "docs" / "howto" / f"{scheme}.md"
    url = f"{scheme}://owner@db.internal/app"
    printed = output("schema", "grants", "app", url)
    assert f"$ holdfast schema grants app {url}\n{printed}```\n" in page.read_text("utf-8")
