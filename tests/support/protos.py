"""Descriptors of services, by the compiler of protobuf."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def compile_protos(folder: Path, sources: Mapping[str, str], imports: bool = True
                   ) -> Path:
    """`sources`: their texts, by name; the first is compiled."""
    pytest.importorskip("grpc_tools")
    for name, text in sources.items():
        (folder / name).write_text(text)
    made = folder / "descriptors.pb"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}",
         *(["--include_imports"] if imports else []),
         f"--descriptor_set_out={made}", next(iter(sources))], check=True, timeout=60)
    return made


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    def run(sources, imports=True):
        return compile_protos(tmp_path_factory.mktemp("protos"), sources, imports)
    return run
