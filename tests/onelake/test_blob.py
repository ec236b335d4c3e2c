"""The Blob interface, request by request."""

from __future__ import annotations

import base64

import pytest
from lakes import BLOB, ITEM, LANDING, onelake, parsed

from mirror_engine.onelake.options import FaultRule

URL = f"{BLOB}/{LANDING}"
BELOW = f"{ITEM}/Files/LandingZone"
BLOCK = {"x-ms-blob-type": "BlockBlob"}


@pytest.fixture
def client(tmp_path):
    return onelake(tmp_path)


def code(response):
    found = parsed(response.content).findtext("Code")
    assert response.headers["x-ms-error-code"] == found
    return response.status_code, found


def put(client, path, content=b"abc", **headers):
    return client.put(f"{URL}/{path}", content=content, headers=BLOCK | headers)


def listed(client, **params):
    answer = client.get(f"{BLOB}/shop", params={"restype": "container", "comp": "list", **params})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/xml;charset=utf-8")
    root = parsed(answer.content)
    assert root.get("ContainerName") == "shop"
    prefixes = [each.findtext("Name") for each in root.iter("BlobPrefix")]
    return [each.findtext("Name") for each in root.iter("Blob")], prefixes, root.findtext("NextMarker")


def test_a_blob_is_put_read_and_deleted(client):
    made = put(client, "T/x", **{"If-None-Match": "*"})
    assert made.status_code == 201
    assert code(put(client, "T/x", **{"If-None-Match": "*"})) == (409, "BlobAlreadyExists")
    assert code(client.put(f"{URL}/T/y", content=b"", headers={"x-ms-blob-type": "AppendBlob"}))[0] == 400
    read = client.get(f"{URL}/T/x")
    assert (read.content, read.headers["etag"]) == (b"abc", made.headers["etag"])
    assert read.headers["x-ms-blob-type"] == "BlockBlob"
    assert code(client.delete(f"{URL}/T")) == (409, "DirectoryIsNotEmpty")
    assert client.delete(f"{URL}/T/x").status_code == 202
    assert code(client.get(f"{URL}/T/x")) == (404, "BlobNotFound")
    assert code(client.get(f"{BLOB}/no/{ITEM}/Files/x")) == (404, "ContainerNotFound")


def test_blocks_show_when_their_list_is_put(client):
    ids = [base64.b64encode(f"{number:04}".encode()).decode() for number in range(3)]
    for number, each in enumerate(ids):
        params = {"comp": "block", "blockid": each}
        assert client.put(f"{URL}/T/x", params=params, content=b"%d" % number).status_code == 201
    assert client.head(f"{URL}/T/x").status_code == 404
    wanted = "".join(f"<Latest>{each}</Latest>" for each in (ids[2], ids[0]))
    made = client.put(
        f"{URL}/T/x?comp=blocklist", content=f'<?xml version="1.0" encoding="utf-8"?><BlockList>{wanted}</BlockList>'
    )
    assert made.status_code == 201
    assert client.get(f"{URL}/T/x").content == b"20"
    again = client.put(f"{URL}/T/y?comp=blocklist", content=f"<BlockList><Latest>{ids[1]}</Latest></BlockList>")
    assert code(again) == (400, "InvalidBlockList")


LAUGHS = """<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<BlockList><Latest>&b;</Latest></BlockList>"""


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"no xml",
        b"<Other/>",
        b"<BlockList><Odd>1</Odd></BlockList>",
        b"<BlockList>" + b"<a>" * 10_000,
        LAUGHS.encode(),
        LAUGHS.replace("?>", ' encoding="utf-16"?>').encode("utf-16"),
        b'<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]><BlockList><Latest>&x;</Latest></BlockList>',
        b"\x00\xff",
    ],
)
def test_what_is_no_block_list_or_unfolds_is_refused(client, document):
    assert code(client.put(f"{URL}/T/x?comp=blocklist", content=document)) == (400, "InvalidXmlDocument")


def test_a_block_list_is_read_up_to_a_limit(client):
    document = b"<BlockList><Latest>QQ==</Latest></BlockList>" + b" " * (4 << 20)
    assert code(client.put(f"{URL}/T/x?comp=blocklist", content=document)) == (413, "RequestBodyTooLarge")


def test_a_copy_is_done_when_it_is_answered(client):
    put(client, "T/x")
    for source in (f"{URL}/T/x", f"/{LANDING}/T/x?sig=secret"):
        copied = client.put(f"{URL}/U/y", headers={"x-ms-copy-source": source})
        assert (copied.status_code, copied.headers["x-ms-copy-status"]) == (202, "success")
        whole = client.put(f"{URL}/U/y", headers={"x-ms-copy-source": source, "x-ms-blob-type": "BlockBlob"})
        assert whole.status_code == 201  # Put Blob From URL
        assert client.get(f"{URL}/U/y").content == b"abc"
    elsewhere = client.put(f"{URL}/U/z", headers={"x-ms-copy-source": f"https://else.example/{LANDING}/T/x"})
    assert code(elsewhere) == (400, "InvalidSourceUri")


def test_a_user_delegation_key_is_given(client):
    client.lake.options.add([FaultRule("throttle", path="shop/*")])  # paths of the account itself are no reason to fail
    url = f"{BLOB}/?restype=service&comp=userdelegationkey"
    times = "<Start>2026-11-23T00:00:00Z</Start><Expiry>2026-11-23T01:00:00Z</Expiry>"
    key = parsed(client.post(url, content=f"<?xml version='1.0'?><KeyInfo>{times}</KeyInfo>").content)
    assert (key.findtext("SignedStart"), key.findtext("SignedExpiry")) == (
        "2026-11-23T00:00:00Z",
        "2026-11-23T01:00:00Z",
    )
    assert len(base64.b64decode(key.findtext("Value"), validate=True)) == 32
    for document in ("", "<KeyInfo/>", "<!DOCTYPE x><KeyInfo><Expiry>x</Expiry></KeyInfo>"):
        assert code(client.post(url, content=document)) == (400, "InvalidXmlDocument")


def test_lists_in_byte_order(client):
    for path in ("T/1", "T/2", "T.x", "T/sub/3"):
        put(client, path)
    all_below = [f"{BELOW}/{path}" for path in ("T", "T.x", "T/1", "T/2", "T/sub", "T/sub/3")]
    assert listed(client, prefix=f"{BELOW}/") == (all_below, [], "")
    assert listed(client, prefix=f"{BELOW}/T/", delimiter="/") == (all_below[2:4], [f"{BELOW}/T/sub/"], "")
    assert listed(client, prefix=f"{BELOW}/T", delimiter="/") == ([all_below[1]], [f"{BELOW}/T/"], "")
    assert listed(client, prefix=f"{BELOW}/T/", startFrom=f"{BELOW}/T/2")[0] == all_below[3:]
    assert listed(client, prefix=f"{BELOW}/none/") == ([], [], "")
    marker, seen = "", []
    while True:
        names, _, marker = listed(client, prefix=f"{BELOW}/", maxresults=2, marker=marker)
        seen += names
        if not marker:
            break
    assert seen == all_below


def test_a_name_that_xml_cannot_hold_is_encoded(client):
    put(client, "T/%01x")
    answer = client.get(f"{BLOB}/shop", params={"restype": "container", "comp": "list", "prefix": f"{BELOW}/T/"})
    name = parsed(answer.content).find("./Blobs/Blob/Name")
    assert (name.get("Encoded"), name.text) == ("true", f"{BELOW}/T/%01x")


def test_a_folder_is_a_blob_that_says_so(client):
    assert put(client, "T", b"", **{"x-ms-meta-hdi_isfolder": "true"}).status_code == 201
    assert client.head(f"{URL}/T").headers["x-ms-resource-type"] == "directory"
    put(client, "T/x")
    answer = client.get(f"{BLOB}/shop", params={"restype": "container", "comp": "list", "prefix": f"{BELOW}/"})
    folder, file = parsed(answer.content).iter("Blob")
    assert folder.findtext("Metadata/hdi_isfolder") == "true"
    assert file.findtext("Properties/Content-Length") == "3"
    assert f'"{file.findtext("Properties/Etag")}"' == client.head(f"{URL}/T/x").headers["etag"]


def test_containers_and_accounts(client):
    assert client.get(f"{BLOB}/shop?restype=container").status_code == 200
    assert client.head(f"{BLOB}/shop?restype=container").status_code == 200
    assert client.get(f"{BLOB}/?restype=account&comp=properties").headers["x-ms-is-hns-enabled"] == "true"
    assert code(client.put(f"{BLOB}/new?restype=container")) == (400, "BadRequest")
    assert code(client.delete(f"{BLOB}/shop?restype=container")) == (400, "BadRequest")
    put(client, "T/x")
    assert client.put(f"{URL}/T/x?comp=metadata").status_code == 200
    assert client.put(f"{URL}/T/x?comp=lease", headers={"x-ms-lease-action": "acquire"}).status_code == 201


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


def test_batches_are_refused_as_onelake_does_unless_a_switch_lets_them_delete(client):
    refused = delete_both(client)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "BadRequest")
    assert client.head(f"{URL}/T/x").status_code == 200
    client.lake.options.blob_batch = "accept"
    answer = delete_both(client)
    assert answer.status_code == 202
    assert answer.headers["content-type"].startswith("multipart/mixed; boundary=")
    first, second, escaping = answer.text.split("Content-Type: application/http")[1:]
    assert "Content-ID: 0" in first
    assert ("HTTP/1.1 202" in first, "HTTP/1.1 404" in second, "HTTP/1.1 400" in escaping) == (True, True, True)
    assert client.head(f"{URL}/T/x").status_code == 404


@pytest.mark.parametrize("shown", ["batch_G/x+B", '"batch_G/x+B"'])
def test_a_batch_s_boundary_may_hold_any_letter_of_base64(client, shown):
    """Rust's clients write such boundaries without quotes, though a slash would need them."""
    client.lake.options.blob_batch = "accept"
    assert delete_both(client, "batch_G/x+B", shown).status_code == 202
    assert client.head(f"{URL}/T/x").status_code == 404


PART = b"--b\r\nContent-Type: application/http\r\n\r\nDELETE %s HTTP/1.1\r\n\r\n"
NESTED = [b"--b%d\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n" % (n, n + 1) for n in range(2_000)]


@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (PART % b"/x" * 300 + b"--b--", {400}),
        (b"--b\r\n" + b"x" * (5 << 20), {413}),
        (b"".join(NESTED).replace(b"--b0\r\n", b"--b\r\n", 1), {202, 400}),
    ],
)
def test_a_batch_that_unfolds_without_end_is_refused(client, body, statuses):
    client.lake.options.blob_batch = "accept"
    kind = {"Content-Type": "multipart/mixed; boundary=b"}
    assert client.post(f"{BLOB}/shop?restype=container&comp=batch", content=body, headers=kind).status_code in statuses


def test_a_plus_is_a_blank_in_a_query_and_a_plus_in_a_path(client):
    for name in ("A%20B", "A+B"):
        put(client, f"{name}/1")
    for prefix, found in (("A+B", "A B"), ("A%20B", "A B"), ("A%2BB", "A+B")):
        answer = client.get(f"{BLOB}/shop?restype=container&comp=list&prefix={BELOW}/{prefix}/")
        assert [each.findtext("Name") for each in parsed(answer.content).iter("Blob")] == [f"{BELOW}/{found}/1"]
