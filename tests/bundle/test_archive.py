"""The form of a bundle, and refusals: by signature, by form, by size (R96)."""

import gzip
import hashlib
import tarfile

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutthrough.bundle import archive
from cutthrough.bundle.archive import read_bundle
from cutthrough.bundle.manifest import (
    MANIFEST,
    MOST_BYTES,
    SIGNATURE,
    BundleError,
    Canary,
    File,
    Manifest,
)
from tests.support.bundles import CREATED, bundle, key, public, tar

FILES = {"cutthrough.toml": 'policy = "policy.toml"\n', "policy.toml": "x",
         "lists/a.txt": "one\ntwo\n"}


def signed(files: dict[str, bytes], *others, serial: int = 1, **more) -> bytes:
    """The tar of these files, with `others` behind the signature."""
    entries = {name: File(hashlib.sha256(content).hexdigest(), len(content))
               for name, content in files.items()}
    text = msgspec.json.encode(Manifest(serial, "r", CREATED, entries, **more))
    return tar((MANIFEST, text), (SIGNATURE, key().sign(text)), *others)


def reason(data: bytes, *keys: str) -> str:
    with pytest.raises(BundleError) as caught:
        read_bundle(data, keys or [public()])
    return str(caught.value)


def test_a_directory_comes_back_with_its_serial_and_revision() -> None:
    read = read_bundle(bundle(7, FILES, "a.7", percent=5), [public()])
    assert read.manifest.label == ("a.7", 7)
    assert read.manifest.canary == Canary(5)
    assert {name: read.files[name].decode() for name in FILES} == FILES
    assert read.files.keys() - FILES == {MANIFEST, SIGNATURE}


def test_the_same_directory_makes_the_same_octets() -> None:
    assert bundle(7, FILES) == bundle(7, FILES)


def test_one_of_several_keys_has_to_have_signed() -> None:
    data = bundle(1, FILES, signer="second")
    assert read_bundle(data, [public(), public("second")])
    assert "the signature is of none" in reason(data)
    with pytest.raises(BundleError):
        read_bundle(data, [])


def test_a_change_of_any_octet_of_an_unpacked_bundle_is_refused_or_of_no_effect(
        ) -> None:
    data = gzip.decompress(bundle(1, {"policy.toml": "abc"}))
    whole = read_bundle(data, [public()])
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 0x41
        try:
            assert read_bundle(bytes(changed), [public()]) == whole
        except BundleError:
            pass


@pytest.mark.parametrize("packed", [True, False])
def test_a_bundle_that_is_cut_off_is_refused_unless_every_file_is_whole(
        packed: bool) -> None:
    data = bundle(1, {"policy.toml": "abc"})
    whole, refused = read_bundle(data, [public()]), 0
    data = data if packed else gzip.decompress(data)
    for size in range(0, len(data), 13):
        try:
            assert read_bundle(data[:size], [public()]) == whole
        except BundleError:
            refused += 13
    assert refused > (0.9 * len(data) if packed else 3 * 1024)


def test_what_is_no_bundle_is_refused() -> None:
    for data in (b"", b"x", b"\x1f\x8b", bytes(4096), b"<html>" * 400,
                 gzip.compress(b"<html>" * 400), tar(), tar(("a", b"b"))):
        assert reason(data)


@given(st.binary(min_size=148, max_size=148), st.binary(min_size=356, max_size=356),
       st.binary(max_size=2048), st.booleans())
def test_no_header_is_more_than_a_refusal(
        first: bytes, last: bytes, rest: bytes, packed: bool) -> None:
    """Whatever has a sum that is right."""
    total = sum(first) + 8 * ord(" ") + sum(last)
    data = first + b"%06o\0 " % total + last + rest
    reason(gzip.compress(data) if packed else data)


@given(st.binary(max_size=4096))
def test_no_octets_are_more_than_a_refusal(data: bytes) -> None:
    reason(data)
    reason(b"\x1f\x8b\x08" + data)


def test_nothing_is_inflated_behind_a_signature_that_is_wrong(monkeypatch) -> None:
    """A bomb of 64 MiB that nobody has signed is read to 1 MiB at most."""
    text = msgspec.json.encode(Manifest(1, "r", CREATED, {}))
    content = tar((MANIFEST, text), (SIGNATURE, bytes(64)), ("a", bytes(64 << 20)))
    bomb, inflated = gzip.compress(content), []

    class Counted(archive._Content):
        def _more(self) -> bytes:
            piece = super()._more()
            inflated.append(len(piece))
            return piece

    monkeypatch.setattr(archive, "_Content", Counted)
    assert "the signature is of none" in reason(bomb)
    assert sum(inflated) <= 1 << 20


def test_a_member_is_not_longer_than_the_manifest_says() -> None:
    data = signed({"a": b"short"}, ("a", bytes(8 << 20)))
    assert reason(gzip.compress(data)) == "a: is not the file of the manifest"


def test_sizes_are_bounded() -> None:
    assert "more than" in reason(bytes(MOST_BYTES + 1))
    manifest = Manifest(1, "r", CREATED, {
        name: File("0" * 64, MOST_BYTES) for name in "ab"})
    text = msgspec.json.encode(manifest)
    assert "more than" in reason(tar((MANIFEST, text), (SIGNATURE, key().sign(text))))
    assert "more than" in reason(tar((MANIFEST, bytes(1 << 20))))
    assert "more than" in reason(tar((MANIFEST, b"{}"), (SIGNATURE, bytes(65))))


@pytest.mark.parametrize("name", [
    "/etc/passwd", "../up", "a/../../up", "a//b", ".hidden", "a/.b", "./a", "a/", "",
    "manifest.json", "manifest.sig", "a\\b", "a b", "ä", "a\n", "a" * 101])
def test_a_name_that_could_leave_the_directory_is_refused(name: str) -> None:
    assert reason(signed({name: b""}, ("x", b"")))


def test_a_file_is_no_directory_of_another() -> None:
    assert "below a file" in reason(signed({"a": b"", "a/b": b""}, ("a", b"")))


@pytest.mark.parametrize("kind", [
    tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE,
    tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE])
def test_only_regular_files_are_members(kind: bytes) -> None:
    member = tarfile.TarInfo("a")
    member.type, member.linkname = kind, "/etc/passwd"
    assert "is no regular file" in reason(signed({"a": b""}, member))


def test_members_are_those_of_the_manifest_once_each() -> None:
    assert "not in the manifest" in reason(signed({}, ("a", b"")))
    assert "there twice" in reason(
        signed({"a": b"", "b": b""}, ("a", b""), ("a", b"")))
    assert "has not every file" in reason(signed({"a": b""}))
    assert "is not the file" in reason(signed({"a": b"1"}, ("a", b"2")))
    assert "has to begin with" in reason(tar(("a", b""), (MANIFEST, b"{}")))


@pytest.mark.parametrize("change", [
    {"serial": 0}, {"serial": 1 << 53}, {"revision": ""}, {"revision": "a b"},
    {"revision": "a\n"}, {"unknown": 1}, {"canary": {"percent": 101}},
    {"files": {"a": {"sha256": "0" * 63, "bytes": 0}}}, {"created": None}])
def test_a_manifest_has_its_fields_and_no_others(change: dict) -> None:
    fields = {"serial": 1, "revision": "r", "created": CREATED, "files": {}} | change
    text = msgspec.json.encode(fields)
    assert "manifest.json: " in reason(tar((MANIFEST, text),
                                           (SIGNATURE, key().sign(text))))


def test_a_directory_with_a_link_to_a_device_is_not_built(tmp_path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(BundleError, match="is no regular file"):
        archive.read_folder(str(tmp_path))


def test_hidden_files_stay_out(tmp_path) -> None:
    for name in (".git", "lists"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("x")
    (tmp_path / ".key").write_text("x")
    assert archive.read_folder(str(tmp_path)) == {"lists/a": b"x"}
