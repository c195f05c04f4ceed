# SPDX-License-Identifier: Apache-2.0
"""Compiles CUDA C++ to PTX with the NVRTC of the nvidia-cuda-nvrtc wheel: compile.py FILE.cu [OPTION...]"""

import ctypes
import os
import pathlib
import sys
import sysconfig

folder = pathlib.Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "lib")
if str(folder) not in os.environ.get("LD_LIBRARY_PATH", ""):
    # The compiler finds its own parts through the loader's path, which is read when a process starts.
    os.environ["LD_LIBRARY_PATH"] = str(folder)
    os.execv(sys.executable, [sys.executable, *sys.argv])
nvrtc = ctypes.CDLL(str(next(folder.glob("libnvrtc.so*"))))
source = pathlib.Path(sys.argv[1])
options = [option.encode() for option in sys.argv[2:] or ["--gpu-architecture=compute_75"]]


def text(program, what):
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode()


program = ctypes.c_void_p()
nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None)
result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
print(text(program, "ProgramLog"), file=sys.stderr, end="")
if result:
    sys.exit(1)
source.with_suffix(".ptx").write_text(text(program, "PTX"))
