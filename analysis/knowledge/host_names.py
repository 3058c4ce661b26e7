"""What shows on the launching thread why time is lost: names of annotations, Python frames, runtime calls and operators.

Rows of ``analysis/knowledge/causes.py`` say of which cause.
"""

from __future__ import annotations

import re

DATA_MARK = re.compile(
    r"enumerate\(DataLoader\)|_(Multi|Single)ProcessDataLoaderIter|DataLoader.*__next__|^\[pl\].*(fetch|next)|train_dataloader_next|data[_ ]?(load|fetch|wait)|^(load|get|next|fetch)[_ ](batch|data)",
    re.IGNORECASE,
)
ENGINE_OP = re.compile(r"^autograd::engine::")  # of a backward pass, each node
DATA_FRAME = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): (__next__|_next_data|_get_data|_try_get_data)")
ALLOCATOR_CALL = re.compile(
    r"^(cuda|hip|cu)(Malloc|Free|HostAlloc|HostRegister|HostUnregister|Mem(Create|Map|Unmap|Release|SetAccess|Alloc|Free|AddressReserve|AddressFree))"
)
COMPILE_CALL = re.compile(
    r"ModuleLoad|ModuleUnload|LibraryLoad|LibraryUnload|LinkCreate|LinkAdd|LinkComplete|ModuleGetFunction|KernelGetFunction"
)
# Operators that compute, by leaving out those that only make another view, memory or a Python number.
COMPUTING = re.compile(
    r"^(aten|torchvision|torchaudio)::(?!_?(un)?(view|reshape|expand|transpose|t$|permute|slice|select|split|chunk|bind|narrow|as_strided|squeeze|flatten|unflatten|"
    r"detach|alias|(new_)?empty|result_type|lift|resize|set_|movedim|numpy_T|item|local_scalar|is_nonzero|diagonal|real$|imag$|to$|broadcast|record_stream|pin_memory|is_pinned))"
)
# An operator on a GPU tensor that has nothing to launch takes 1 to 20 µs, recorded and on a slow host
COMPUTES_AT_LEAST_NS = 50_000
COMPILE_OVERHEAD = re.compile(r"Lazy Function Loading|Driver Compiler|Runtime Triggered Module Loading", re.IGNORECASE)
# Calls that always leave a record on the GPU: in 150 intact recordings every one has its own. Fills of 0 bytes have none, so that memset is not among them.
LEAVES_RECORD = re.compile(r"^(cuda|cu|hip)(\w*Launch(?!HostFunc)\w*|Memcpy\w*Async\w*)$")
GRAPH_LAUNCH = re.compile(r"GraphLaunch")  # one such call starts many GPU operations
# While a stream is captured into a CUDA graph, launches are noted down and not run.
CAPTURE_BEGINS = re.compile(r"^(cuda|cu|hip)StreamBeginCapture")
CAPTURE_ENDS = re.compile(r"^(cuda|cu|hip)StreamEndCapture")
