"""The Blob dialect's XML: listings out, block lists in."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree as ET

from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.headers import CONTENT_TYPE, http_date

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror_engine.endpoint.lake import Listed

_BLOCK_KINDS = frozenset({"Latest", "Uncommitted", "Committed"})


def listing(
    workspace: str, asked: Mapping[str, str], blobs: Sequence[Listed], prefixes: Sequence[str], following: str
) -> bytes:
    """One page of a listing.

    Args:
        workspace: as the client names it; with more in `ContainerName` adlfs sees nothing.
        asked: `Prefix`, `Marker`, `MaxResults`, `Delimiter` as far as they were asked for.
        blobs: files and folders.
        prefixes: folders that a delimiter has closed, with it at their end.
        following: the next page's marker; `""` at the end.
    """
    root = ET.Element("EnumerationResults", ContainerName=workspace)
    for name, value in asked.items():
        _text(root, name, value)
    inside = ET.SubElement(root, "Blobs")
    for blob in blobs:
        _blob(inside, blob)
    for prefix in prefixes:
        _text(ET.SubElement(inside, "BlobPrefix"), "Name", prefix)
    _text(root, "NextMarker", following)
    document: bytes = ET.tostring(root, "utf-8", xml_declaration=True)
    return document


def _blob(inside: ET.Element, listed: Listed) -> None:
    found = listed.properties
    blob = ET.SubElement(inside, "Blob")
    _text(blob, "Name", listed.name)
    properties = ET.SubElement(blob, "Properties")
    said = {
        "Creation-Time": http_date(found.modified_ns),
        "Last-Modified": http_date(found.modified_ns),
        "Etag": found.etag.strip('"'),
        "ResourceType": "directory" if found.is_folder else "file",
        "Content-Length": str(found.size),
        "Content-Type": CONTENT_TYPE,
        "BlobType": "BlockBlob",
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "ServerEncrypted": "true",
    }
    for name, value in said.items():
        ET.SubElement(properties, name).text = value
    if found.is_folder:
        ET.SubElement(ET.SubElement(blob, "Metadata"), "hdi_isfolder").text = "true"


def _text(above: ET.Element, name: str, text: str) -> None:
    """A name or prefix; percent-encoded, and marked so, where XML knows no such characters."""
    element = ET.SubElement(above, name)
    if any(letter < " " or "\x7f" <= letter <= "\x9f" or "\ufffe" <= letter <= "\uffff" for letter in text):
        element.set("Encoded", "true")
        text = quote(text, safe="/")
    element.text = text


def block_ids(document: bytes) -> list[str]:
    """The blocks that a block list names, in order.

    Raises:
        EndpointFault: INVALID_XML_DOCUMENT.
    """
    try:
        text = document.decode("utf-8-sig")
        if "<!" in text:  # a DOCTYPE (rule 9.6)
            raise EndpointFault(Fault.INVALID_XML_DOCUMENT)
        root = ET.fromstring(text)  # noqa: S314 - nothing that declares entities comes this far
    except (ET.ParseError, ValueError) as problem:
        raise EndpointFault(Fault.INVALID_XML_DOCUMENT) from problem
    if root.tag != "BlockList" or any(each.tag not in _BLOCK_KINDS for each in root):
        raise EndpointFault(Fault.INVALID_XML_DOCUMENT, "It is no list of blocks.")
    return [(each.text or "").strip() for each in root]
