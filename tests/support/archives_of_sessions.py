"""Archives of sessions, as an export has them, and as it has not."""

import io
import json
import tarfile


def manifest(*names, **more):
    return json.dumps({"version": 1, "recordings": names, **more}).encode()


def entry(text="x", request=None, response=None, **more):
    return json.dumps({
        "request": {"method": "GET", "scheme": "http", "host": "a", "port": 80,
                    "path": "/", **(request or {})},
        "response": {"status": 200, "chunks": [{"at_us": 0, "data": {"text": text}}],
                     **(response or {})}, **more}).encode()


def tar(files):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def sparse(name, size, form="old"):
    """A member without data: all of it is a hole."""
    info = tarfile.TarInfo(name)
    if form == "pax":
        info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1",
                            "GNU.sparse.name": name, "GNU.sparse.size": str(size),
                            "GNU.sparse.map": f"{size},0"}
        return info.tobuf(tarfile.PAX_FORMAT)
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398], header[398:410] = b"%011o\0" % size, b"%011o\0" % 0
    header[410:482] = bytes(72)
    header[482:483], header[483:495] = b"\0", b"%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)
