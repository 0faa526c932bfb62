"""`--host` and `--ssh-key`: what users may write, and how hosts become pools."""

from pathlib import Path

import asyncssh
import click
import pytest

from remuda.cli import own_servers


def test_hosts_become_pools_in_their_order() -> None:
    found = own_servers.hosts(["192.0.2.10,192.0.2.11:2222", "[2001:db8::12]:22", "barn.example.com"])
    servers, workers = own_servers.counts(len(found), 1, None)
    assert (servers, workers) == (1, 3)
    of_servers, of_workers = own_servers.pool_options(found, servers, workers)
    assert of_servers == {"addresses": ["192.0.2.10"]}
    assert of_workers == {"addresses": ["192.0.2.11:2222", "[2001:db8::12]", "barn.example.com"]}


def test_user_of_hosts_becomes_option_of_their_pool() -> None:
    found = own_servers.hosts(["root@192.0.2.10", "cowhand@192.0.2.11:2222"])
    assert own_servers.pool_options(found, 1, 1) == (
        {"addresses": ["192.0.2.10"]},
        {"addresses": ["192.0.2.11:2222"], "sshUser": "cowhand"},
    )
    with pytest.raises(click.UsageError, match=r"the servers have different users \(cowhand, root\)"):
        own_servers.pool_options(found, 2, 0)


def test_single_host_is_a_server_that_runs_pods() -> None:
    found = own_servers.hosts(["192.0.2.10"])
    assert own_servers.counts(1, 1, None) == (1, 0)
    assert own_servers.pool_options(found, 1, 0)[0] == {"addresses": ["192.0.2.10"]}


def test_too_few_hosts_are_refused() -> None:
    with pytest.raises(click.UsageError, match=r"4 machines \(3 servers, 1 worker\) need as many hosts.* names 2"):
        own_servers.counts(2, 3, 1)
    with pytest.raises(click.UsageError, match="3 machines"):
        own_servers.counts(2, 3, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("192.0.2.10,192.0.2.10:22", "names 192.0.2.10 twice"),
        ("192.0.2.10,", "empty entry"),
        ("@192.0.2.10", "'' is not a user name"),
        ("a b@192.0.2.10", "'a b' is not a user name"),
        ("192.0.2.10:ssh", "write ADDRESS, USER@ADDRESS"),
        ("https://barn", "write ADDRESS, USER@ADDRESS"),
    ],
)
def test_bad_host_is_refused(text: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        own_servers.hosts([text])


def test_key_file_is_read_and_unusable_ones_are_explained(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    good, public, locked, other = (tmp_path / name for name in ("good", "public", "locked", "other"))
    good.write_bytes(key.export_private_key())
    public.write_bytes(key.export_public_key())
    locked.write_bytes(key.export_private_key("pkcs8-pem", passphrase="hush"))
    other.write_text("no key")
    assert own_servers.read_key(good) == good.read_text()
    for path, said in (
        (public, "is a public key"),
        (locked, "has a passphrase"),
        (other, "is not a private key in OpenSSH or PEM format"),
        (tmp_path / "absent", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(click.ClickException, match=said):
            own_servers.read_key(path)
