"""Names on the launching thread that show causes of lost time, as regular expressions.

They match annotations, Python frames, runtime calls and operators. The rows of ``analysis/knowledge/causes.py`` assign them to
causes.
"""

from __future__ import annotations

import re

DATA_MARK = re.compile(
    r"enumerate\(DataLoader\)|_(Multi|Single)ProcessDataLoaderIter|DataLoader.*__next__|^\[pl\].*(fetch|next)|train_dataloader_next|data[_ ]?(load|fetch|wait)|^(load|get|next|fetch)[_ ](batch|data)",
    re.IGNORECASE,
)
ENGINE_OP = re.compile(r"^autograd::engine::")  # Name of each node of a backward pass.
DATA_FRAME = re.compile(r"torch/utils/data/dataloader\.py\(\d+\): (__next__|_next_data|_get_data|_try_get_data)")
ALLOCATOR_CALL = re.compile(
    r"^(cuda|hip|cu)(Malloc|Free|HostAlloc|HostRegister|HostUnregister|Mem(Create|Map|Unmap|Release|SetAccess|Alloc|Free|AddressReserve|AddressFree))"
)
ALLOCATOR_FRAME = re.compile(r"torch/cuda/memory\.py\(\d+\): empty_cache|_cuda_emptyCache")
COMPILE_CALL = re.compile(
    r"ModuleLoad|ModuleUnload|LibraryLoad|LibraryUnload|LinkCreate|LinkAdd|LinkComplete|ModuleGetFunction|KernelGetFunction"
)
# Operators that compute. The pattern excludes those that only make a view or a sparse tensor, allocate memory or return a
# Python number, and those that leave the computing to an operator inside them. With anomaly detection, each operator of this
# pattern takes more than 50 µs, because it stores a stack.
COMPUTING = re.compile(
    r"^(aten|torchvision|torchaudio)::(?!_?(unsafe_|tensor_|[hvd](?=split))?(un)?(view|reshape|expand|transpose|t$|permute|slice|select|split|chunk|bind|narrow|as_strided|squeeze|flatten|"
    r"detach|alias|(new_)?empty|result_type|lift|resize|set_|movedim|moveaxis|swap(axes|dims)|ravel|(?<=un)fold$|numpy_T|[mM][TH]$|matrix_H|adjoint|conj$|neg_view|resolve_|"
    r"item|local_scalar|is_nonzero|diagonal|real$|imag$|to$|contiguous|atleast_|requires_grad|retain_grad|size$|stride$|is_same_size|can_cast|promote_types|type_as|broadcast|record_stream|pin_memory|is_pinned|"
    r"sparse_(coo|compressed|csr|csc|bsr|bsc)_tensor|indices$|values$|nnz$|(is_)?coalesced|(sparse|dense)_dim|dim[IV]$))"
)
# Without anomaly detection, an operator without launches takes 1 to 20 µs on a GPU tensor (measured on a slow host).
COMPUTES_AT_LEAST_NS = 50_000
COMPILE_OVERHEAD = re.compile(r"Lazy Function Loading|Driver Compiler|Runtime Triggered Module Loading", re.IGNORECASE)
# Calls that always leave a record on the GPU: in 150 intact recordings each has one. Memset is not among them, because fills of
# 0 bytes leave no record.
LEAVES_RECORD = re.compile(r"^(cuda|cu|hip)(\w*Launch(?!HostFunc)\w*|Memcpy\w*Async\w*)$")
GRAPH_LAUNCH = re.compile(r"GraphLaunch")  # One such call starts many GPU operations.
# While a stream is captured into a CUDA graph, its launches are stored in the graph and not run.
CAPTURE_BEGINS = re.compile(r"^(cuda|cu|hip)StreamBeginCapture")
CAPTURE_ENDS = re.compile(r"^(cuda|cu|hip)StreamEndCapture")
