"""Messages of gRPC as fields, by the descriptors of their services.

    a body ─> messages ─> fields, without the ignored ones ─> one spelling of equal ones

The descriptors are a FileDescriptorSet, as `protoc --descriptor_set_out` writes it. Two
messages are equal if their fields are: the order on the wire, packing, the order of a
map's entries and fields with their default do not count. A message that is compressed,
malformed, too long, or has fields that the descriptors lack, is compared as octets,
because its fields are not all known.
"""

import functools
import hashlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutthrough.exchange.bounds import KeyMistake

PREFIX = 5                                   # octets before each message
# A parsed message takes up to 30 times its octets
MOST_MESSAGE = 1 << 20
# Octets of a body, and of one message, that are read in the loop: 4 ms
MOST_BODY_NEAR, MOST_MESSAGE_NEAR = 5000, 8 << 10
MOST_FILE = 16 << 20
MISSING = ("comparing messages of gRPC needs protobuf: "
           "pip install 'cutthrough[grpc]'")
_STEP = re.compile(r"\.([A-Za-z_]\w*)(\[\*\])?")

Steps = tuple[tuple[str, bool], ...]         # a field's name, and whether of each entry


def read_steps(path: str) -> Steps:
    """Returns the steps of a path of names, as `$.trace.id` or `$.items[*].id`. Raises
    KeyMistake."""
    steps = list(_STEP.finditer(path, 1))
    if not steps or not path.startswith("$") or (
            "".join(match[0] for match in steps) != path[1:]):
        raise KeyMistake(f"{path!r} is no path of fields, such as $.trace.id or "
                         "$.items[*].id")
    return tuple((match[1], match[2] is not None) for match in steps)


def digest_of(path: str) -> bytes:
    """Returns the digest of a file of descriptors. Raises KeyMistake."""
    return hashlib.sha256(_read(path)).digest()


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_FILE + 1)
    except OSError as error:
        raise KeyMistake(f"{path}: {error.strerror}") from None
    if len(data) > MOST_FILE:
        raise KeyMistake(f"{path}: is longer than {MOST_FILE} bytes")
    return data


class Services:
    """The methods that a FileDescriptorSet has."""

    def __init__(self, data: bytes, name: str) -> None:
        """Raises KeyMistake."""
        try:
            descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
            pools = importlib.import_module("google.protobuf.descriptor_pool")
            self._factory: Any = importlib.import_module(
                "google.protobuf.message_factory")
        except ImportError:
            raise KeyMistake(MISSING) from None
        try:
            files = descriptors.FileDescriptorSet.FromString(data).file
        except Exception:                    # DecodeError, of one library or the other
            files = ()
        if not files:
            raise KeyMistake(f"{name}: is no FileDescriptorSet, as "
                             "`protoc --descriptor_set_out` writes it")
        pool = pools.DescriptorPool()
        for file in files:
            try:
                pool.Add(file)
            except TypeError:                # the pool lacks its import
                raise KeyMistake(
                    f"{name}: {file.name} imports files that are not there: use "
                    "`protoc --include_imports`") from None
        self._types: dict[str, Any] = {
            f"/{service.full_name}/{method.name}": method.input_type
            for file in files
            for service in pool.FindFileByName(file.name).services_by_name.values()
            for method in service.methods}
        if not self._types:
            raise KeyMistake(f"{name}: has no service")
        self._classes: dict[str, Any] = {}

    def class_of(self, path: str) -> Any:
        """Returns the class of the messages of a request for this path. Raises
        ValueError."""
        message_class = self._classes.get(path)
        if message_class is None:
            if path not in self._types:
                raise ValueError("the descriptors have no such method")
            message_class = self._classes[path] = self._factory.GetMessageClass(
                self._types[path])
        return message_class

    def has(self, steps: Steps) -> bool:
        """Whether the messages of some method may have this field."""
        return any(_leads(kind, steps) for kind in self._types.values())


@functools.lru_cache(8)
def services_of(path: str, digest: bytes) -> Services:
    """Raises KeyMistake, and ValueError if the file has changed since the digest."""
    data = _read(path)
    if hashlib.sha256(data).digest() != digest:
        raise ValueError(f"{path} has changed")
    return Services(data, path)


class MessageReader:
    """Reads messages by one key."""

    def __init__(self, path: str, digest: bytes, ignored: tuple[str, ...]) -> None:
        """Raises KeyMistake."""
        self._ignored = tuple(map(read_steps, ignored))
        self._services: Services | None = None       # the file has changed meanwhile
        try:
            self._services = services_of(path, digest)
        except KeyMistake:
            raise
        except ValueError:
            return
        for text, steps in zip(ignored, self._ignored, strict=True):
            if not self._services.has(steps):
                raise KeyMistake(f"{text}: the messages of no method in {path} have "
                                 "such a field")

    def spell(self, path: str, body: bytes) -> bytes:
        """The same octets for equal messages. Raises ValueError."""
        parts = list[bytes]()
        for message in self.messages(path, body):
            data = message.SerializeToString(deterministic=True)
            parts += [len(data).to_bytes(4), data]
        return b"".join(parts)

    def documents(self, path: str, body: bytes) -> list[dict[str, Any]]:
        """The fields by name, to show differences. Raises ValueError."""
        as_json = importlib.import_module("google.protobuf.json_format")
        return [as_json.MessageToDict(message, preserving_proto_field_name=True)
                for message in self.messages(path, body)]

    def _ignored_at(self, path: str) -> list[Steps]:
        assert self._services is not None
        kind = self._services.class_of(path).DESCRIPTOR
        return [steps for steps in self._ignored if _leads(kind, steps)]

    def messages(self, path: str, body: bytes) -> Iterator[Any]:
        if self._services is None:
            raise ValueError("the descriptors have changed")
        message_class, ignored = self._services.class_of(path), self._ignored_at(path)
        at = 0
        while at < len(body):
            end = at + PREFIX + int.from_bytes(body[at + 1:at + PREFIX])
            if body[at] or not at + PREFIX <= end <= len(body) or (
                    end - at > MOST_MESSAGE):
                raise ValueError("a message is compressed, cut or too long")
            try:
                message = message_class.FromString(body[at + PREFIX:end])
            except Exception as error:       # DecodeError is no ValueError
                raise ValueError("a message is malformed") from error
            size = message.ByteSize()
            message.DiscardUnknownFields()
            if message.ByteSize() != size:
                raise ValueError("a message has fields that the descriptors lack")
            for steps in ignored:
                _clear(message, steps)
            yield message
            at = end


def _leads(kind: Any, steps: Steps) -> bool:
    """`kind`: the descriptor of a message."""
    for number, (name, of_each) in enumerate(steps):
        field = None if kind is None else kind.fields_by_name.get(name)
        if field is None or (of_each and not _is_repeated(field)):
            return False
        is_last = number == len(steps) - 1
        if not is_last and _is_repeated(field) != of_each:
            return False
        kind = None if _is_map(field) else field.message_type
    return True


def _is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)          # since protobuf 6.31
    return bool(field.label == 3 if known is None else known)


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


def _clear(message: Any, steps: Steps) -> None:
    """The messages at a step are of one kind."""
    kind, holders = message.DESCRIPTOR, [message]
    for name, of_each in steps[:-1]:
        field = kind.fields_by_name[name]
        holders = [inner for holder in holders for inner in getattr(holder, name)] if (
            of_each) else [getattr(holder, name) for holder in holders
                           if holder.HasField(name)]
        kind = field.message_type
    last = steps[-1][0]
    for holder in holders:
        holder.ClearField(last)
