from collections.abc import Mapping

TLVS: tuple[str, ...]

def pack_tlvs(values: Mapping[str, bytes]) -> bytes: ...
