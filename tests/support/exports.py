"""Exports of replayproxy, as its documentation has them."""

import json

import yaml


def document(number, *, method="GET", uri="/a", request=(("host", b"a.test"),),
             sent=b"", status=200, response=(("content-type", b"text/plain"),),
             body=b"", **more):
    """A file of recordings/."""
    return {
        "id": number, "match_key": "5f1c", "request_method": method, "request_uri": uri,
        "request_headers": [[name, [*value]] for name, value in request],
        "request_body": [*sent], "response_status": status,
        "response_headers": [[name, [*value]] for name, value in response],
        "response_body": [*body], "created_at_unix_ms": 1_767_065_999_000 + number,
        **more}


def export(folder, form, *documents, version=2):
    """Returns the folder."""
    def write(path, value):
        path.write_text(json.dumps(value, indent=2) if form == "json" else
                        yaml.safe_dump(value, sort_keys=False))

    (folder / "recordings").mkdir(parents=True)
    names = []
    for at, document in enumerate(documents):
        names.append(f"recordings/{at + 1:04}-get-a-id{document['id']}.{form}")
        write(folder / names[-1], document)
    write(folder / f"index.{form}", {
        "version": version, "session": "default", "format": form,
        "exported_at_unix_ms": 1_767_066_000_123, "recordings": [
            {"id": document["id"], "file": name,
             "request_method": document["request_method"],
             "request_uri": document["request_uri"],
             "response_status": document["response_status"],
             "created_at_unix_ms": document["created_at_unix_ms"]}
            for document, name in zip(documents, names, strict=True)]})
    return folder
