"""Entra's part: what a client with its own credentials asks for, and the stand-in for `az` that prints a token."""

from __future__ import annotations

import json
import os
import subprocess
import time
from urllib.parse import urlencode

import jwt
import pytest
from raw_http import exchange, request, running, shared_authority, status_of

from mirror_engine.onelake.entra import az, entra_app, install_az
from mirror_engine.onelake.hosts import LOGINS

GRANT = {"grant_type": "client_credentials", "client_id": "c", "client_secret": "x"}


@pytest.fixture(scope="module")
def entra_http():
    with running(entra_app()) as started:
        yield started


def asked(emulator, method, target, form=b""):
    length = f"Content-Length: {len(form)}"
    answer = exchange(emulator.http_port, request(method, target, LOGINS[0], length, body=form))
    return status_of(answer), json.loads(answer.partition(b"\r\n\r\n")[2])


def claims(emulator, token, audience="https://storage.azure.com"):
    """Of a token, checked as a client does that reads Entra's keys."""
    _, keys = asked(emulator, "GET", "/t/discovery/v2.0/keys")
    key = jwt.PyJWKSet.from_dict(keys)[jwt.get_unverified_header(token)["kid"]]
    return jwt.decode(token, key, algorithms=["RS256"], audience=audience)


@pytest.fixture
def az_environment(entra_http, monkeypatch):
    """What the stub `az` needs of a publisher's."""
    values = {"HTTPS_PROXY": f"http://127.0.0.1:{entra_http.proxy_port}", "SSL_CERT_FILE": str(shared_authority().ca)}
    values |= {"https_proxy": values["HTTPS_PROXY"], "AZURE_TENANT_ID": "t"}
    monkeypatch.setattr("urllib.request._opener", None)  # it keeps the first proxy of a process
    for name, text in values.items():
        monkeypatch.setenv(name, text)
    return values


@pytest.mark.slow
def test_any_tenant_client_and_secret_gets_a_token_of_an_hour(entra_http):
    form = urlencode(GRANT | {"scope": "https://storage.azure.com/.default"}).encode()
    status, reported = asked(entra_http, "POST", "/any-tenant/oauth2/v2.0/token", form)
    assert status == 200
    assert (reported["token_type"], reported["expires_in"], reported["ext_expires_in"]) == ("Bearer", 3599, 3599)
    found = claims(entra_http, reported["access_token"])
    assert (found["aud"], found["tid"], found["appid"]) == ("https://storage.azure.com", "any-tenant", "c")
    assert found["exp"] - found["iat"] == 3599
    assert abs(found["iat"] - time.time()) < 60


def test_version_1_takes_a_resource_and_answers_with_text(entra_http):
    resource = "https://storage.azure.com/"
    status, reported = asked(entra_http, "POST", "/t/oauth2/token", urlencode(GRANT | {"resource": resource}).encode())
    assert (status, reported["token_type"], reported["expires_in"]) == (200, "Bearer", "3599")
    assert reported["resource"] == resource
    found = claims(entra_http, reported["access_token"], resource)
    assert (reported["not_before"], reported["expires_on"]) == (str(found["nbf"]), str(found["exp"]))


def test_the_form_may_be_in_the_query(entra_http):
    status, reported = asked(entra_http, "POST", f"/t/oauth2/v2.0/token?{urlencode(GRANT)}")
    assert (status, reported["token_type"]) == (200, "Bearer")


@pytest.mark.parametrize(
    ("form", "error"),
    [
        *((urlencode(GRANT | {"grant_type": grant}).encode(), "unsupported_grant_type") for grant in ("password", "x")),
        *((form, "invalid_request") for form in (b"", b"grant_type", b"\xff\xfe=%zz&&&=", b"grant_type=&client_id=c")),
    ],
)
def test_other_grants_and_forms_without_one_are_refused(entra_http, form, error):
    status, reported = asked(entra_http, "POST", "/t/oauth2/v2.0/token", form)
    assert (status, reported["error"]) == (400, error)


def test_a_form_without_end_is_refused(entra_http):
    status, reported = asked(entra_http, "POST", "/t/oauth2/v2.0/token", b"a=" + b"b" * 70_000)
    assert (status, reported["error"]) == (413, "invalid_request")


def test_the_documents_of_discovery_name_entra_s_own_endpoints(entra_http):
    _, configuration = asked(entra_http, "GET", "/t/v2.0/.well-known/openid-configuration")
    names = ("issuer", "token_endpoint", "authorization_endpoint", "device_authorization_endpoint")
    assert all(configuration[name].startswith("https://login.microsoftonline.com/t/") for name in names)
    query = "api-version=1.1&authorization_endpoint=https://login.microsoftonline.com/t/oauth2/v2.0/authorize"
    _, instances = asked(entra_http, "GET", f"/common/discovery/instance?{query}")
    assert instances["tenant_discovery_endpoint"] == (
        "https://login.microsoftonline.com/common/v2.0/.well-known/openid-configuration"
    )
    assert "login.microsoftonline.com" in instances["metadata"][0]["aliases"]


def test_az_prints_a_token_as_json_or_bare(entra_http, az_environment, capsys):
    assert az(["account", "get-access-token", "--output", "json", "--scope", "https://x/.default"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert set(reported) == {"accessToken", "expiresOn", "expires_on", "subscription", "tenant", "tokenType"}
    assert reported["tokenType"] == "Bearer"
    assert 3500 < reported["expires_on"] - time.time() <= 3600
    assert claims(entra_http, reported["accessToken"], "https://x")["tid"] == az_environment["AZURE_TENANT_ID"]
    assert az(["account", "get-access-token", "--resource", "https://x", "-o", "tsv", "--query", "accessToken"]) == 0
    bare = capsys.readouterr().out
    assert bare.count(".") == 2
    assert len(bare.split()) == 1


def test_az_says_that_it_got_no_token(az_environment, monkeypatch, capsys):
    monkeypatch.setenv("https_proxy", az_environment["HTTPS_PROXY"].rpartition(":")[0] + ":1")
    assert az(["account", "get-access-token"]) == 1
    assert "no token" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["login"], ["account"], ["account", "show"], ["storage", "blob", "list"]])
def test_az_refuses_everything_else(words, capsys):
    assert az(words) == 2
    assert "mirror-engine" in capsys.readouterr().err


@pytest.mark.slow
def test_az_ignores_files_of_the_current_folder(az_environment, tmp_path):
    folder = tmp_path / "it's a folder" / "bin"
    folder.parent.mkdir()
    install_az(folder)
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    az_environment |= {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    words = ["az", "account", "get-access-token", "--tenant", "t"]
    done = subprocess.run(words, cwd=tmp_path, env=az_environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["tenant"] == "t"
