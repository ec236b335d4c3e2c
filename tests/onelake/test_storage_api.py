"""The interfaces of ADLS Gen2 and of Blob Storage, request by request."""

from __future__ import annotations

import base64
import hashlib

import pytest
from zone_client import BLOB, DFS, ITEM, LANDING, onelake, parsed

from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.options import FaultRule

URL = f"{DFS}/{LANDING}"


@pytest.fixture
def onelake_api(tmp_path):
    return onelake(tmp_path)


def code(response):
    """Of an error, as its header and its JSON or XML have it."""
    is_json = response.headers["content-type"].startswith("application/json")
    found = response.json()["error"]["code"] if is_json else parsed(response.content).findtext("Code")
    assert response.headers["x-ms-error-code"] == found
    return response.status_code, found


def upload(client, path, content):
    assert client.put(f"{path}?resource=file").status_code == 201
    if content:
        assert client.patch(f"{path}?action=append&position=0", content=content).status_code == 202
    return client.patch(f"{path}?action=flush&position={len(content)}")


@pytest.mark.parametrize("method", ["PATCH", "PUT", "POST"])
def test_an_append_may_flush_and_hadoop_sends_patches_under_another_method(onelake_api, method):
    onelake_api.put(f"{URL}/T/1.csv?resource=file")
    override = {"X-HTTP-Method-Override": "PATCH"}
    query = "action=append&position=0&flush=true"
    assert onelake_api.request(method, f"{URL}/T/1.csv?{query}", content=b"abc", headers=override).status_code == 202
    assert onelake_api.put(f"{URL}/T/1.csv?action=flush&position=3").status_code == 200
    assert onelake_api.get(f"{URL}/T/1.csv").content == b"abc"


MD5 = base64.b64encode(hashlib.md5(b"y").digest()).decode()  # noqa: S324 - as Azure has it
NEW, OLD = f"{LANDING}/T/new", f"{LANDING}/T/x"


def renaming(source, **headers):
    return {"headers": {"x-ms-rename-source": source, **headers}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "target", "sent", "expected"),
    [
        ("PUT", f"{NEW}?resource=file", {"content": b"x"}, "ContentLengthMustBeZero"),
        ("PUT", f"{NEW}?resource=other", {}, "InvalidQueryParameterValue"),
        ("PUT", NEW, {}, "MissingRequiredHeader"),
        ("PATCH", f"{OLD}?action=append&position=-1", {"content": b"x"}, "InvalidQueryParameterValue"),
        ("PATCH", f"{OLD}?action=append", {"content": b"x"}, "MissingRequiredQueryParameter"),
        ("PATCH", f"{OLD}?action=flush", {}, "MissingRequiredQueryParameter"),
        ("PATCH", f"{OLD}?action=append&position=", {"content": b"x"}, "InvalidQueryParameterValue"),
        ("GET", f"{LANDING}/T?resource=filesystem&recursive=true&maxResults=0", {}, "OutOfRangeQueryParameterValue"),
        ("GET", f"{LANDING}/T?resource=filesystem&recursive=true&maxResults=-1", {}, "InvalidQueryParameterValue"),
        ("PATCH", f"{OLD}?action=append&position=3", {"content": b"x", "headers": {"Content-MD5": "x"}}, "InvalidMd5"),
        ("PATCH", f"{OLD}?action=append&position=3", {"content": b"x", "headers": {"Content-MD5": MD5}}, "Md5Mismatch"),
        ("PUT", NEW, {"content": b"x", "headers": {"x-ms-blob-type": "BlockBlob", "Content-MD5": MD5}}, "Md5Mismatch"),
        ("PATCH", f"{OLD}?action=append&position={'9' * 23}", {"content": b"x"}, "InvalidQueryParameterValue"),
        ("PATCH", f"{OLD}?action=append&position=1e9", {"content": b"x"}, "InvalidQueryParameterValue"),
        ("PATCH", f"{OLD}?action=append&position=٣", {"content": b"x"}, "InvalidQueryParameterValue"),
        ("PATCH", f"{OLD}?action=flush&position=3", {"content": b"x"}, "ContentLengthMustBeZero"),
        ("PATCH", f"{OLD}?action=setAccessControl", {}, "UnsupportedQueryParameter"),
        ("OPTIONS", OLD, {}, "UnsupportedHttpVerb"),
        ("POST", OLD, {"headers": {"x-ms-lease-action": "steal"}}, "InvalidHeaderValue"),
        ("DELETE", f"shop/{ITEM}/Files?recursive=true", {}, "OperationNotAllowedOnThePath"),
        ("GET", f"{NEW}?resource=filesystem", {}, "PathNotFound"),
        ("GET", f"{LANDING}/T?resource=filesystem&continuation=%21%21", {}, "InvalidQueryParameterValue"),
        ("GET", f"{LANDING}/T?resource=filesystem&continuation=AAAA", {}, "InvalidQueryParameterValue"),
        ("GET", f"{LANDING}/T?resource=filesystem&continuation=%C3%BC", {}, "InvalidQueryParameterValue"),
        ("GET", f"{LANDING}/T?resource=filesystem&recursive=maybe", {}, "InvalidQueryParameterValue"),
        ("PATCH", f"{OLD}?action=append&position=3&flush=1", {"content": b"x"}, "InvalidQueryParameterValue"),
        ("DELETE", f"{OLD}?recursive=yes", {}, "InvalidQueryParameterValue"),
        ("DELETE", OLD, {"headers": {"If-None-Match": "*"}}, "ConditionNotMet"),
        ("PATCH", f"{OLD}?action=setProperties", {"headers": {"If-None-Match": "*"}}, "ConditionNotMet"),
        ("GET", f"no/{ITEM}/Files/x", {}, "WorkspaceNotFound"),
        # what OneLake does not know is not taken for the file
        ("GET", f"{OLD}?comp=blocklist", {}, "UnsupportedQueryParameter"),
        ("GET", f"{OLD}?comp=tags", {}, "UnsupportedQueryParameter"),
        ("DELETE", f"{OLD}?comp=tags", {}, "UnsupportedQueryParameter"),
        # conditions
        ("PUT", f"{OLD}?resource=file", {"headers": {"If-None-Match": "*"}}, "PathAlreadyExists"),
        ("PATCH", f"{OLD}?action=flush&position=3", {"headers": {"If-Match": '"0x8D1"'}}, "ConditionNotMet"),
        ("PUT", NEW, renaming(f"/{OLD}", **{"x-ms-source-if-match": '"0x1"'}), "SourceConditionNotMet"),
        ("PUT", OLD, renaming(f"/{OLD}", **{"If-None-Match": "*"}), "PathAlreadyExists"),
        # sources
        ("PUT", NEW, renaming("/LandingZone/T/_1.parquet"), "SourcePathNotFound"),
        ("PUT", NEW, renaming(f"https://else.example/{OLD}"), "InvalidSourceUri"),
        ("PUT", f"{LANDING}/no/x", renaming(f"/{OLD}"), "RenameDestinationParentPathNotFound"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(onelake_api, method, target, sent, expected):
    upload(onelake_api, f"{DFS}/{OLD}", b"abc")
    answer = onelake_api.request(method, f"{DFS}/{target}", **sent)
    assert code(answer) == (StorageErrorCode[expected].status, expected)
    assert onelake_api.get(f"{DFS}/{OLD}").content == b"abc"
    assert onelake_api.head(f"{DFS}/{NEW}").status_code == 404


@pytest.mark.parametrize(
    ("method", "target"),
    [("PUT", "new?resource=filesystem"), ("DELETE", "shop?recursive=true"), ("PUT", "shop?resource=directory")],
)
def test_a_workspace_is_not_changed_here(onelake_api, method, target):
    answer = onelake_api.request(method, f"{DFS}/{target}")
    assert code(answer) == (400, "BadRequest")
    message = answer.json()["error"]["message"]
    assert message.startswith("Either WorkspaceId or ArtifactId are missing in the request")


def test_a_current_copy_is_not_sent_again(onelake_api):
    etag = upload(onelake_api, f"{DFS}/{OLD}", b"abc").headers["etag"]
    known = onelake_api.get(f"{DFS}/{OLD}", headers={"If-None-Match": etag})
    assert (known.status_code, known.content) == (304, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        f"/{LANDING}/T/%C3%BC",
        f"//{LANDING}/T/%C3%BC",
        f"/{LANDING}//T/ü?resource=file".encode(),
        f"/onelake/{LANDING}/T/%C3%BC?resource=file",
        f"/{LANDING}/T/%C3%BC".replace("/", "%2F").replace("%2F", "/", 2),
        f"{LANDING}/T/%C3%BC",
        f"{DFS}/{LANDING}/T/%C3%BC",
        f"http://localhost:1/{LANDING}/T/%C3%BC",
        f"https://127.0.0.1:1/onelake/{LANDING}/T/%C3%BC?sig=x",
    ],
)
def test_a_file_is_renamed_in_all_the_ways_that_clients_write(onelake_api, source):
    upload(onelake_api, f"{URL}/T/%C3%BC", b"abc")
    before = onelake_api.head(f"{URL}/T/%C3%BC").headers
    assert onelake_api.put(f"{URL}/T/y?mode=legacy", headers={"x-ms-rename-source": source}).status_code == 201
    after = onelake_api.head(f"{URL}/T/y").headers
    assert (after["etag"], after["last-modified"]) == (before["etag"], before["last-modified"])
    assert onelake_api.head(f"{URL}/T/%C3%BC").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        *(f"/{LANDING}/{way}" for way in ("../../../../secret", "..%2f..%2f..%2f..%2fsecret", "x%00")),
        f"http://localhost/{LANDING}//../../../../secret",
        f"/shop%2F{ITEM}%2F..%2F..%2Fsecret",
        "/shop%2F.mirror-engine%2Ftls%2Femulator.pem",
        "/.mirror-engine/emulator.json",
        f"/shop/{ITEM}/.mirror-engine/ledger.sqlite",
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        f"//elsewhere.example/{LANDING}/x",
        f"{DFS}.elsewhere.example/{LANDING}/x",
        f"{DFS}@elsewhere.example/{LANDING}/x",
    ],
)
@pytest.mark.parametrize("header", ["x-ms-rename-source", "x-ms-copy-source"])
def test_ways_out_keys_and_other_hosts_are_no_source(onelake_api, source, header):
    onelake_api.put(f"{URL}?resource=directory")
    assert onelake_api.put(f"{URL}/stolen", headers={header: source}).status_code in {400, 404}
    assert onelake_api.head(f"{URL}/stolen").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status", "shown", "content"),
    [
        ({"Range": "bytes=2-4"}, 206, "bytes 2-4/10", b"234"),
        ({"x-ms-range": "bytes=2-"}, 206, "bytes 2-9/10", b"23456789"),
        ({"Range": "bytes=-3"}, 206, "bytes 7-9/10", b"789"),
        ({"Range": "bytes=8-99"}, 206, "bytes 8-9/10", b"89"),
        ({"Range": "lines=1-2"}, 200, None, b"0123456789"),
        ({"Range": "Bytes=2-4"}, 206, "bytes 2-4/10", b"234"),
        ({"Range": "bytes=0-0", "x-ms-range": "bytes=5-5"}, 206, "bytes 5-5/10", b"5"),
        ({"Range": "bytes=10-"}, 416, "bytes */10", None),
    ],
)
def test_a_range_is_read(onelake_api, headers, status, shown, content):
    upload(onelake_api, f"{URL}/T/x", b"0123456789")
    answer = onelake_api.get(f"{URL}/T/x", headers=headers)
    assert (answer.status_code, answer.headers.get("content-range")) == (status, shown)
    assert code(answer) == (416, "InvalidRange") if content is None else answer.content == content


def names(response):
    assert response.headers["content-type"].startswith("application/json")
    return [path["name"] for path in response.json()["paths"]]


@pytest.mark.slow
def test_listings_at_any_depth(onelake_api):
    for path in ("A.schema/T/1.csv", "A.schema/T/2.csv", "B/1.csv"):
        upload(onelake_api, f"{URL}/{path}", b"abc")
    below = f"{ITEM}/Files/LandingZone"
    assert names(onelake_api.get(f"{URL}?resource=filesystem")) == [f"{below}/A.schema", f"{below}/B"]
    for where in ("directory=/A.schema/T/", "directory=A.schema%2FT"):
        found = onelake_api.get(f"{URL}?resource=filesystem&recursive=true&{where}")
        assert names(found) == [f"{below}/A.schema/T/1.csv", f"{below}/A.schema/T/2.csv"]
    deep = onelake_api.get(f"{DFS}/shop?resource=filesystem&recursive=false&directory={below}").json()["paths"]
    assert [path.get("isDirectory") for path in deep] == ["true", "true"]
    file = onelake_api.get(f"{URL}/B?resource=filesystem").json()["paths"][0]
    for where in (f"{URL}?directory=B/1.csv", f"{DFS}/shop?recursive=true&directory={below}/B/1.csv"):
        assert onelake_api.get(f"{where}&resource=filesystem").json() == {"paths": [file]}
    seen = onelake_api.head(f"{URL}/B/1.csv").headers
    assert file == {
        "name": f"{below}/B/1.csv",
        "contentLength": "3",
        "lastModified": seen["last-modified"],
        "etag": seen["etag"].strip('"'),
        "owner": "$superuser",
        "group": "$superuser",
        "permissions": "---------",
    }


def test_a_long_listing_comes_in_pages_and_may_begin_at_a_path(onelake_api):
    for path in ("A/1", "A/2 ü+%25", "A/3", "B/1", "B/2"):
        onelake_api.put(f"{URL}/{path}?resource=file")
    query = {"resource": "filesystem", "recursive": "true", "beginFrom": "A/2", "maxResults": 2}
    pages, token = [], ""
    while not pages or token:
        page = onelake_api.get(URL, params={**query, "continuation": token})
        pages.append([name.rpartition("Zone/")[2] for name in names(page)])
        token = page.headers.get("x-ms-continuation", "")
    assert pages == [["A/2 ü+%", "A/3"], ["B", "B/1"], ["B/2"]]


def pages_of(client, dialect):
    """Names of a folder's files, page by page; what is done between two pages is the consumer's."""
    token = ""
    while True:
        if dialect == "dfs":
            query = {"resource": "filesystem", "recursive": "true", "maxResults": 3, "continuation": token}
            page = client.get(f"{URL}/T", params=query)
            found, token = names(page), page.headers.get("x-ms-continuation", "")
        else:
            query = {"restype": "container", "comp": "list", "prefix": f"{BELOW}/T/", "maxresults": 3, "marker": token}
            root = parsed(client.get(f"{BLOB}/shop", params=query).content)
            found, token = [each.findtext("Name") for each in root.iter("Blob")], root.findtext("NextMarker")
        yield [name.rpartition("/")[2] for name in found]
        if not token:
            return


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["dfs", "blob"])
def test_listing_in_pages_loses_and_repeats_nothing_while_files_change(onelake_api, dialect):
    stays = [f"{number:02}-stays" for number in range(0, 20, 2)]
    for name in (*stays, *(f"{number:02}-goes" for number in range(1, 20, 2))):
        onelake_api.put(f"{URL}/T/{name}?resource=file")
    seen = []
    for number, page in enumerate(pages_of(onelake_api, dialect)):
        seen += page
        for each in range(1, 20, 2):
            onelake_api.delete(f"{URL}/T/{each:02}-goes")
        onelake_api.put(f"{URL}/T/{number:02}-new?resource=file")
        onelake_api.put(f"{URL}/T/zz-{number}?resource=file")
        assert number < 50
        if number > 5:
            break
    assert len(seen) == len(set(seen))
    assert [name for name in seen if name.endswith("stays")] == stays
    onelake_api.delete(f"{URL}/T?recursive=true")
    token = base64.urlsafe_b64encode(f"{BELOW}/T/05-goes".encode()).decode()
    gone = onelake_api.get(f"{URL}/T", params={"resource": "filesystem", "recursive": "true", "continuation": token})
    assert code(gone) == (404, "PathNotFound")


def test_folders_are_made_and_deleted(onelake_api):
    made = onelake_api.put(f"{URL}/T?resource=directory")
    assert (made.status_code, made.headers["etag"]) == (201, onelake_api.head(f"{URL}/T").headers["etag"])
    assert onelake_api.head(f"{URL}/T").headers["x-ms-meta-hdi_isfolder"] == "true"
    upload(onelake_api, f"{URL}/T/x", b"abc")
    assert onelake_api.delete(f"{URL}/T?recursive=true&paginated=true").status_code == 200
    assert onelake_api.head(f"{URL}/T").status_code == 404


def test_every_answer_says_what_it_answers(onelake_api):
    sent = {"x-ms-version": "2023-11-03", "x-ms-client-request-id": "mine", "x-ms-owner": "me", "x-ms-acl": "x"}
    answer = onelake_api.head(f"{URL}", headers=sent)
    assert answer.headers["x-ms-version"] == "2023-11-03"
    assert answer.headers["x-ms-client-request-id"] == "mine"
    assert answer.headers["x-ms-rejected-headers"] == "x-ms-owner,x-ms-acl"
    plain = onelake_api.get(f"{URL}/no")
    assert plain.headers["x-ms-version"] == "2021-06-08"
    assert plain.headers["x-ms-request-id"] != answer.headers["x-ms-request-id"]
    assert onelake_api.head(f"{URL}/no").content == b""


def test_no_browser_takes_a_file_for_a_script_of_the_page_at_the_same_address(onelake_api):
    onelake_api.put(f"{URL}/x.js?resource=file")
    found, absent = onelake_api.get(f"{URL}/x.js"), onelake_api.get(f"{URL}/no.js")
    assert found.headers["Content-Type"] == "application/octet-stream"
    assert found.headers["X-Content-Type-Options"] == absent.headers["X-Content-Type-Options"] == "nosniff"


def test_answers_have_headers_that_azure_sdks_require(onelake_api):
    upload(onelake_api, f"{URL}/T/x", b"abc")
    assert onelake_api.patch(f"{URL}/T/x?action=setProperties").status_code == 200
    looked_at = onelake_api.head(f"{URL}/T/x").headers
    for action, status in (("acquire", 201), ("break", 202), ("release", 200)):
        leased = onelake_api.post(f"{URL}/T/x", headers={"x-ms-lease-action": action})
        assert (leased.status_code, len(leased.headers["x-ms-lease-id"])) == (status, 36)
        assert (leased.headers["etag"], leased.headers["x-ms-lease-time"]) == (looked_at["etag"], "0")
    assert (looked_at["x-ms-creation-time"], looked_at["x-ms-acl"][:9]) == (looked_at["last-modified"], "user::---")
    container = onelake_api.get("https://onelake.blob.fabric.microsoft.com/shop?restype=container").headers
    said = {"has-immutability-policy", "immutable-storage-with-versioning-enabled", "deny-encryption-scope-override"}
    assert {container[f"x-ms-{name}"] for name in said} == {"false"}
    assert "x-ms-default-encryption-scope" in container


def test_method_override_header_is_not_honoured(onelake_api):
    upload(onelake_api, f"{URL}/T/x", b"abc")
    for method, meant in (("POST", "HEAD"), ("POST", "GET"), ("GET", "DELETE"), ("HEAD", "DELETE")):
        answer = onelake_api.request(method, f"{URL}/T/x", headers={"X-HTTP-Method-Override": meant})
        assert answer.status_code == (405 if method == "POST" else 200)
    assert onelake_api.get(f"{URL}/T/x").content == b"abc"


def test_a_disk_that_fails_is_a_busy_server(onelake_api, monkeypatch):
    def fail(*_):
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(onelake_api.lake, "create_file", fail)
    assert code(onelake_api.put(f"{URL}/T/1.csv?resource=file")) == (503, "ServerBusy")


BLOBS = f"{BLOB}/{LANDING}"
BELOW = f"{ITEM}/Files/LandingZone"
BLOCK = {"x-ms-blob-type": "BlockBlob"}


def put(client, path, content=b"abc", **headers):
    return client.put(f"{BLOBS}/{path}", content=content, headers=BLOCK | headers)


def listed(client, **params):
    answer = client.get(f"{BLOB}/shop", params={"restype": "container", "comp": "list", **params})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/xml;charset=utf-8")
    root = parsed(answer.content)
    assert root.get("ContainerName") == "shop"
    prefixes = [each.findtext("Name") for each in root.iter("BlobPrefix")]
    return [each.findtext("Name") for each in root.iter("Blob")], prefixes, root.findtext("NextMarker")


LAUGHS = """<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<BlockList><Latest>&b;</Latest></BlockList>"""


NO_LISTS = [
    b"",
    b"no xml",
    b"<Other/>",
    b"<BlockList><Odd>1</Odd></BlockList>",
    b"<BlockList>" + b"<a>" * 10_000,
    b"<BlockList><Latest><Latest>QQ==</Latest></Latest></BlockList>",
    b"<BlockList>" + b"<Latest>QQ==</Latest>" * 50_001 + b"</BlockList>",
    b"<BlockList " + b"".join(b'a%d="" ' % number for number in range(501)) + b"/>",
    b"<a>" * 1_390_000,
    LAUGHS.encode(),
    LAUGHS.replace("?>", ' encoding="utf-16"?>').encode("utf-16"),
    b'<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]><BlockList><Latest>&x;</Latest></BlockList>',
    b"\x00\xff",
]
NO_KEYS = ["", "<KeyInfo/>", "<!DOCTYPE x><KeyInfo><Expiry>x</Expiry></KeyInfo>"]
KEY_PATH = "?restype=service&comp=userdelegationkey"
NO_BLOCK_IDS = ["", "no base64", "QQ", base64.b64encode(b"a" * 65).decode()]
FROM = {"x-ms-copy-source": f"{BLOB}/{OLD}"}
ONLY_NEW = {"If-None-Match": "*"}
BLOCK_PATH = f"{NEW}?comp=block&blockid=QQ=="


@pytest.mark.parametrize(
    ("method", "target", "sent", "expected"),
    [
        ("PUT", OLD, {"headers": BLOCK | ONLY_NEW}, (409, "BlobAlreadyExists")),
        ("PUT", f"{OLD}?comp=blocklist", {"content": "<BlockList/>", "headers": ONLY_NEW}, (409, "BlobAlreadyExists")),
        ("PUT", NEW, {"headers": {"x-ms-blob-type": "AppendBlob"}}, (400, "InvalidHeaderValue")),
        ("DELETE", f"{LANDING}/T", {}, (409, "DirectoryIsNotEmpty")),
        ("GET", NEW, {}, (404, "BlobNotFound")),
        ("GET", f"no/{ITEM}/Files/x", {}, (404, "ContainerNotFound")),
        ("PUT", "new?restype=container", {}, (400, "BadRequest")),
        ("DELETE", "shop?restype=container", {}, (400, "BadRequest")),
        *(("POST", KEY_PATH, {"content": document}, (400, "InvalidXmlDocument")) for document in NO_KEYS),
        # blocks
        *(("PUT", f"{NEW}?comp=blocklist", {"content": each}, (400, "InvalidXmlDocument")) for each in NO_LISTS),
        ("PUT", f"{NEW}?comp=blocklist", {"content": b"<BlockList/>" + b" " * (4 << 20)}, (413, "RequestBodyTooLarge")),
        ("PUT", f"{NEW}?comp=block", {"content": b"a"}, (400, "MissingRequiredQueryParameter")),
        *(
            ("PUT", f"{NEW}?comp=block&blockid={block}", {"content": b"a"}, (400, "InvalidQueryParameterValue"))
            for block in NO_BLOCK_IDS
        ),
        ("PUT", BLOCK_PATH, {"headers": FROM, "content": b"x"}, (400, "ContentLengthMustBeZero")),
        *(
            ("PUT", BLOCK_PATH, {"headers": FROM | headers}, expected)
            for headers, expected in (
                ({"x-ms-copy-source": f"{BLOB}/{NEW}"}, (404, "BlobNotFound")),
                ({"x-ms-copy-source": f"https://else.example/{OLD}"}, (400, "InvalidSourceUri")),
                ({"x-ms-source-range": "bytes=8-9"}, (416, "InvalidRange")),
                ({"x-ms-source-range": "2-3"}, (400, "InvalidHeaderValue")),
                ({"x-ms-source-range": "bytes=3-2"}, (400, "InvalidHeaderValue")),
                ({"x-ms-source-range": "bytes=0-1,3-4"}, (400, "InvalidHeaderValue")),
                ({"x-ms-source-range": "bytes=-"}, (400, "InvalidHeaderValue")),
                ({"x-ms-source-if-match": '"0x8D0"'}, (412, "SourceConditionNotMet")),
                ({"x-ms-copy-source": f"{BLOB}/{LANDING}/T/empty"}, (400, "InvalidHeaderValue")),
            )
        ),
    ],
)
def test_refused_blob_request_changes_nothing(onelake_api, method, target, sent, expected):
    put(onelake_api, "T/x", b"abcdefgh")
    put(onelake_api, "T/empty", b"")
    assert code(onelake_api.request(method, f"{BLOB}/{target}", **sent)) == expected
    assert onelake_api.get(f"{BLOB}/{OLD}").content == b"abcdefgh"
    assert onelake_api.head(f"{BLOB}/{NEW}").status_code == 404


@pytest.mark.slow
def test_block_list_has_as_many_blocks_as_in_azure(onelake_api):
    assert onelake_api.put(f"{BLOBS}/T/x?comp=block&blockid=QQ==", content=b"a").status_code == 201
    content = b"<BlockList xmlns='x'>" + b"<Latest>QQ==</Latest>" * 50_000 + b"</BlockList>"
    assert code(onelake_api.put(f"{BLOBS}/T/x?comp=blocklist", content=content)) == (
        400,
        "InvalidXmlDocument",
    )  # its name
    content = content.replace(b" xmlns='x'", b"")
    assert onelake_api.put(f"{BLOBS}/T/x?comp=blocklist", content=content).status_code == 201
    assert onelake_api.put(f"{BLOBS}/T/x?comp=blocklist", content=content).status_code == 201  # its answer was lost
    assert onelake_api.head(f"{BLOBS}/T/x").headers["content-length"] == "50000"


@pytest.mark.parametrize(("first", "second"), [("9", "10"), ("block-9", "block-10"), ("aaaa", "aaa"), ("a", "aaaa")])
def test_block_ids_of_different_lengths_are_rejected(onelake_api, first, second):
    """As in Azure, which compares what was encoded (Azurite #401, stowage #11, azure-storage-java #584)."""
    blocks = [base64.b64encode(each.encode()).decode() for each in (first, second)]
    at = f"{BLOBS}/T/x"
    assert onelake_api.put(at, params={"comp": "block", "blockid": blocks[0]}, content=b"a").status_code == 201
    refused = onelake_api.put(at, params={"comp": "block", "blockid": blocks[1]}, content=b"b")
    assert code(refused) == (400, "InvalidBlobOrBlock")
    other = onelake_api.put(f"{BLOBS}/T/y", params={"comp": "block", "blockid": blocks[1]}, content=b"b")
    assert other.status_code == 201
    listed = f"<BlockList><Latest>{blocks[0]}</Latest></BlockList>"
    assert onelake_api.put(f"{at}?comp=blocklist", content=listed).status_code == 201
    assert onelake_api.put(at, params={"comp": "block", "blockid": blocks[1]}, content=b"b").status_code == 201


def test_body_with_its_md5_is_kept(onelake_api):
    digest = base64.b64encode(hashlib.md5(b"abc").digest()).decode()  # noqa: S324 - as Azure has it
    assert put(onelake_api, "T/x", **{"Content-MD5": digest}).status_code == 201
    onelake_api.put(f"{URL}/T/y?resource=file")
    query = "action=append&position=0&flush=true"
    assert onelake_api.patch(f"{URL}/T/y?{query}", content=b"abc", headers={"Content-MD5": digest}).status_code == 202
    assert onelake_api.get(f"{URL}/T/y").content == onelake_api.get(f"{URL}/T/x").content == b"abc"


def test_flush_may_retain_what_was_sent_beyond_its_position(onelake_api):
    """As Hadoop's driver flushes while later appends are on their way."""
    onelake_api.put(f"{URL}/T/x?resource=file")
    for position, content in ((0, b"ab"), (2, b"cd"), (4, b"ef"), (4, b"EF")):
        onelake_api.patch(f"{URL}/T/x?action=append&position={position}", content=content)
    flush = f"{URL}/T/x?action=flush"
    assert onelake_api.patch(f"{flush}&position=2&retainUncommittedData=true").status_code == 200
    assert onelake_api.get(f"{URL}/T/x").content == b"ab"
    assert onelake_api.patch(f"{flush}&position=2&retainUncommittedData=True&close=false").status_code == 200
    assert onelake_api.patch(f"{flush}&position=4&retainUncommittedData=true").status_code == 200
    assert onelake_api.patch(f"{flush}&position=6&close=true").status_code == 200
    assert onelake_api.get(f"{URL}/T/x").content == b"abcdEF"
    assert onelake_api.lake._uploads.part_count == onelake_api.lake._uploads.used_bytes == 0


def test_flush_that_would_write_nothing_of_what_was_sent_is_rejected(onelake_api):
    """A publisher that means to replace a file appends at 0, and creates it not anew."""
    upload(onelake_api, f"{URL}/T/x", b"old")
    assert onelake_api.patch(f"{URL}/T/x?action=append&position=0", content=b"new").status_code == 202
    assert code(onelake_api.patch(f"{URL}/T/x?action=flush&position=3")) == (400, "InvalidFlushPosition")
    assert onelake_api.get(f"{URL}/T/x").content == b"old"
    whole = onelake_api.patch(f"{URL}/T/x?action=append&position=0&flush=true", content=b"new")
    assert code(whole) == (400, "InvalidFlushPosition")


def test_a_copy_is_done_when_it_is_answered(onelake_api):
    put(onelake_api, "T/x")
    for source in (f"{BLOBS}/T/x", f"/{LANDING}/T/x?sig=secret"):
        copied = onelake_api.put(f"{BLOBS}/U/y", headers={"x-ms-copy-source": source})
        assert (copied.status_code, copied.headers["x-ms-copy-status"]) == (202, "success")
        whole = onelake_api.put(f"{BLOBS}/U/y", headers={"x-ms-copy-source": source, "x-ms-blob-type": "BlockBlob"})
        assert whole.status_code == 201  # Put Blob From BLOBS
        assert onelake_api.get(f"{BLOBS}/U/y").content == b"abc"
    elsewhere = onelake_api.put(f"{BLOBS}/U/z", headers={"x-ms-copy-source": f"https://else.example/{LANDING}/T/x"})
    assert code(elsewhere) == (400, "InvalidSourceUri")


def test_blocks_are_put_from_urls_and_ranges(onelake_api):
    """As rclone and azcopy copy beyond one block."""
    put(onelake_api, "T/x", b"abcdefgh")
    source = {"x-ms-copy-source": f"{BLOBS}/T/x?sig=secret"}
    for block, bounds in (("QQ==", "bytes=0-4"), ("Qg==", "bytes=5-7"), ("Qw==", None)):
        headers = source | ({"x-ms-source-range": bounds} if bounds else {})
        assert onelake_api.put(f"{BLOBS}/U/y?comp=block&blockid={block}", headers=headers).status_code == 201
    listed = "".join(f"<Latest>{block}</Latest>" for block in ("Qw==", "Qg==", "QQ=="))
    done = onelake_api.put(f"{BLOBS}/U/y?comp=blocklist", content=f"<BlockList>{listed}</BlockList>")
    assert done.status_code == 201
    assert onelake_api.get(f"{BLOBS}/U/y").content == b"abcdefghfghabcde"


@pytest.mark.parametrize("at", [URL, BLOBS])
@pytest.mark.parametrize("end", ["/", "%2F", "%2f", "//"])
def test_properties_of_a_path_with_a_slash_at_its_end_are_rejected(onelake_api, at, end):
    """As OneLake does, though the path without it is there: dlt #3866, #4301; duckdb-azure #174."""
    onelake_api.put(f"{URL}/T?resource=directory")
    for place in (f"{at}/T", at, f"{at}/none"):
        answer = onelake_api.head(f"{place}{end}")
        assert (answer.status_code, answer.headers["x-ms-error-code"]) == (403, "AuthenticationFailed")
    assert onelake_api.head(f"{at}/T").status_code == 200
    assert onelake_api.get(f"{URL}/T{end}?resource=filesystem&recursive=false").status_code == 200
    assert onelake_api.head(f"{DFS}/shop/?resource=filesystem").status_code == 200
    assert onelake_api.head(f"{BLOB}/shop/?restype=container").status_code == 200


def test_a_user_delegation_key_is_given(onelake_api):
    onelake_api.lake.options.add(
        [FaultRule("throttle", path="shop/*")]
    )  # paths of the account itself are no reason to fail
    url = f"{BLOB}/{KEY_PATH}"
    times = "<Start>2026-11-23T00:00:00Z</Start><Expiry>2026-11-23T01:00:00Z</Expiry>"
    key = parsed(onelake_api.post(url, content=f"<?xml version='1.0'?><KeyInfo>{times}</KeyInfo>").content)
    assert (key.findtext("SignedStart"), key.findtext("SignedExpiry")) == (
        "2026-11-23T00:00:00Z",
        "2026-11-23T01:00:00Z",
    )
    assert len(base64.b64decode(key.findtext("Value"), validate=True)) == 32


def test_lists_in_byte_order(onelake_api):
    for path in ("T/1", "T/2", "T.x", "T/sub/3"):
        put(onelake_api, path)
    all_below = [f"{BELOW}/{path}" for path in ("T", "T.x", "T/1", "T/2", "T/sub", "T/sub/3")]
    assert listed(onelake_api, prefix=f"{BELOW}/") == (all_below, [], "")
    assert listed(onelake_api, prefix=f"{BELOW}/T/", delimiter="/") == (all_below[2:4], [f"{BELOW}/T/sub/"], "")
    assert listed(onelake_api, prefix=f"{BELOW}/T", delimiter="/") == ([all_below[1]], [f"{BELOW}/T/"], "")
    assert listed(onelake_api, prefix=f"{BELOW}/T/", startFrom=f"{BELOW}/T/2")[0] == all_below[3:]
    assert listed(onelake_api, prefix=f"{BELOW}/none/") == ([], [], "")
    marker, seen = "", []
    while True:
        names, _, marker = listed(onelake_api, prefix=f"{BELOW}/", maxresults=2, marker=marker)
        seen += names
        if not marker:
            break
    assert seen == all_below


def test_a_name_that_xml_cannot_hold_is_encoded(onelake_api):
    put(onelake_api, "T/%01x")
    answer = onelake_api.get(f"{BLOB}/shop", params={"restype": "container", "comp": "list", "prefix": f"{BELOW}/T/"})
    name = parsed(answer.content).find("./Blobs/Blob/Name")
    assert (name.get("Encoded"), name.text) == ("true", f"{BELOW}/T/%01x")


def test_a_folder_is_a_blob_that_says_so(onelake_api):
    assert put(onelake_api, "T", b"", **{"x-ms-meta-hdi_isfolder": "true"}).status_code == 201
    assert onelake_api.head(f"{BLOBS}/T").headers["x-ms-resource-type"] == "directory"
    put(onelake_api, "T/x")
    answer = onelake_api.get(f"{BLOB}/shop", params={"restype": "container", "comp": "list", "prefix": f"{BELOW}/"})
    folder, file = parsed(answer.content).iter("Blob")
    assert folder.findtext("Metadata/hdi_isfolder") == "true"
    assert file.findtext("Properties/Content-Length") == "3"
    assert f'"{file.findtext("Properties/Etag")}"' == onelake_api.head(f"{BLOBS}/T/x").headers["etag"]


def test_containers_and_accounts(onelake_api):
    assert onelake_api.get(f"{BLOB}/shop?restype=container").status_code == 200
    assert onelake_api.head(f"{BLOB}/shop?restype=container").status_code == 200
    assert onelake_api.get(f"{BLOB}/?restype=account&comp=properties").headers["x-ms-is-hns-enabled"] == "true"
    made = put(onelake_api, "T/x")
    read = onelake_api.get(f"{BLOBS}/T/x").headers
    assert (read["etag"], read["x-ms-blob-type"]) == (made.headers["etag"], "BlockBlob")
    assert onelake_api.put(f"{BLOBS}/T/x?comp=metadata").status_code == 200
    assert onelake_api.put(f"{BLOBS}/T/x?comp=lease", headers={"x-ms-lease-action": "acquire"}).status_code == 201
    assert onelake_api.delete(f"{BLOBS}/T/x").status_code == 202
    assert code(onelake_api.get(f"{BLOBS}/T/x")) == (404, "BlobNotFound")


BATCH = (
    "--{boundary}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\nContent-ID: {}\r\n\r\n"
    "DELETE /{}/{} HTTP/1.1\r\nx-ms-date: x\r\nAuthorization: secret\r\nContent-Length: 0\r\n\r\n\r\n"
)


def delete_both(client, boundary="b", shown="b"):
    put(client, "T/x")
    parts = [
        BATCH.format(n, LANDING, name, boundary=boundary) for n, name in enumerate(("T/x?sig=1", "T/no", "%2e%2e/x"))
    ]
    body = "".join([*parts, f"--{boundary}--\r\n"])
    kind = {"Content-Type": f"multipart/mixed; boundary={shown}"}
    return client.post(f"{BLOB}/shop?restype=container&comp=batch", content=body, headers=kind)


def test_batches_are_refused_as_onelake_does_unless_a_switch_lets_them_delete(onelake_api):
    refused = delete_both(onelake_api)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "BadRequest")
    assert onelake_api.head(f"{BLOBS}/T/x").status_code == 200
    onelake_api.lake.options.blob_batch = "accept"
    answer = delete_both(onelake_api)
    assert answer.status_code == 202
    assert answer.headers["content-type"].startswith("multipart/mixed; boundary=")
    first, second, escaping = answer.text.split("Content-Type: application/http")[1:]
    assert "Content-ID: 0" in first
    assert ("HTTP/1.1 202" in first, "HTTP/1.1 404" in second, "HTTP/1.1 400" in escaping) == (True, True, True)
    assert onelake_api.head(f"{BLOBS}/T/x").status_code == 404


@pytest.mark.parametrize("shown", ["batch_G/x+B", '"batch_G/x+B"'])
def test_a_batch_s_boundary_may_hold_any_letter_of_base64(onelake_api, shown):
    """Rust's clients write such boundaries without quotes, though a slash would need them."""
    onelake_api.lake.options.blob_batch = "accept"
    assert delete_both(onelake_api, "batch_G/x+B", shown).status_code == 202
    assert onelake_api.head(f"{BLOBS}/T/x").status_code == 404


PART = b"--b\r\nContent-Type: application/http\r\n\r\nDELETE %s HTTP/1.1\r\n\r\n"
NESTED = [b"--b%d\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n" % (n, n + 1) for n in range(2_000)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (PART % b"/x" * 300 + b"--b--", {400}),
        (b"--b\r\n" + b"x" * (5 << 20), {413}),
        (b"--b\n" * 800_000, {400}),
        (b"--b\r\n" + b"a:b\r" * 900_000 + b"\r\n\r\n--b--", {400}),
        (b"".join(NESTED).replace(b"--b0\r\n", b"--b\r\n", 1), {202, 400}),
    ],
)
def test_a_batch_that_unfolds_without_end_is_refused(onelake_api, body, statuses):
    onelake_api.lake.options.blob_batch = "accept"
    kind = {"Content-Type": "multipart/mixed; boundary=b"}
    assert (
        onelake_api.post(f"{BLOB}/shop?restype=container&comp=batch", content=body, headers=kind).status_code
        in statuses
    )


def test_plus_is_a_space_in_queries_and_literal_in_paths(onelake_api):
    for name in ("A%20B", "A+B"):
        put(onelake_api, f"{name}/1")
    for prefix, found in (("A+B", "A B"), ("A%20B", "A B"), ("A%2BB", "A+B")):
        answer = onelake_api.get(f"{BLOB}/shop?restype=container&comp=list&prefix={BELOW}/{prefix}/")
        assert [each.findtext("Name") for each in parsed(answer.content).iter("Blob")] == [f"{BELOW}/{found}/1"]
