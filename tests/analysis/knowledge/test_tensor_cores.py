"""Tests of the reasons why tensor cores are unused."""

from __future__ import annotations

import pandas as pd
import pytest

from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.analysis.knowledge.kernel_names import KernelClass, classify
from sawtooth.analysis.knowledge.tensor_cores import why_not_tensor_cores
from sawtooth.analysis.tables.efficiency import tf32_categories

H200 = identify("NVIDIA H200", 9, 0, 132, 150109880320, "nvidia")
V100 = identify("Tesla V100-SXM2-32GB", 7, 0, 80, 34079637504, "nvidia")
P100 = identify("Tesla P100-PCIE-16GB", 6, 0, 56, 17 << 30, "nvidia")
BF16 = ["c10::BFloat16", "c10::BFloat16"]
FP32 = ["float", "float"]
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(cutlass_80_simt_sgemm_64x64_8x5_tn_align1::Params)"
SQUARE = [[64, 64], [64, 64]]


@pytest.mark.parametrize(
    ("kernel", "op", "types", "dims", "gpu", "code"),
    [
        (SIMT, "aten::mm", FP32, SQUARE, H200, "fp32"),
        (SIMT, "aten::mm", ["double"] * 2, SQUARE, H200, "fp64"),
        (SIMT, "aten::mm", ["int"] * 2, SQUARE, H200, "not_eligible_dtype"),
        (SIMT, "aten::mm", BF16, [[64, 63], [63, 64]], H200, "misaligned"),
        (SIMT, "aten::addmm", ["float", *BF16], [[7], [64, 64], [64, 64]], H200, "fell_back"),  # The bias does not matter.
        (SIMT, "aten::mm", BF16, SQUARE, H200, "fell_back"),
        (SIMT, "aten::mm", None, None, H200, "fell_back"),
        (SIMT, "aten::mm", BF16, SQUARE, P100, "no_tensor_cores"),
        ("naive_conv_nonpacked_fwd_nchw_half", "aten::convolution", BF16, [[8, 3, 32, 32], [64, 3, 3, 3]], H200, "misaligned"),
        ("void gemv2T_kernel_val<int, int, float>(int)", "aten::mm", FP32, [[1, 64], [64, 64]], H200, "vector"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(int)", "aten::mm", BF16, SQUARE, H200, "helper"),
    ],
)  # fmt: skip
def test_reasons(kernel, op, types, dims, gpu, code):
    found = why_not_tensor_cores(op, types, dims, classify(kernel, "kernel", op, types, dims), gpu)
    assert found is not None
    assert found.code == code
    assert len(found.sentence) > 15


def test_misaligned_sizes_are_named():
    found = why_not_tensor_cores("aten::mm", BF16, [[64, 63], [63, 50257]], classify(SIMT, "kernel", "aten::mm", BF16), H200)
    assert found is not None
    assert "63, 50257" in found.sentence
    assert "multiples of 8" in found.sentence


def test_tf32_is_only_advised_if_the_gpu_supports_it():
    kernel = classify(SIMT, "kernel", "aten::mm", FP32)
    on_h200 = why_not_tensor_cores("aten::mm", FP32, SQUARE, kernel, H200)
    on_v100 = why_not_tensor_cores("aten::mm", FP32, SQUARE, kernel, V100)
    assert on_h200 is not None and "TF32" in on_h200.sentence
    assert on_v100 is not None and "TF32" not in on_v100.sentence
    assert "use fp16 autocast" in on_v100.sentence  # V100 has no bf16


@pytest.mark.parametrize(
    ("dims", "code", "said"),
    [
        ([[2048, 20], [20, 606]], "misaligned", "multiples of 4: 606"),  # 16 bytes are four FP32 numbers
        ([[2048, 20], [20, 604]], "fell_back", "TF32 is on"),
    ],
)
def test_tf32_counts_as_on_if_other_products_use_it(dims, code, said):
    found = why_not_tensor_cores(
        "aten::mm", FP32, dims, classify(SIMT, "kernel", "aten::mm", FP32), None, kernel=SIMT, tf32_on=True
    )
    assert found is not None
    assert (found.code, said in found.sentence) == (code, True), found


def test_evidence_that_tf32_is_on():
    fp32, bf16 = '["float","float"]', '["c10::BFloat16","c10::BFloat16"]'
    rows = [
        ("aten::convolution", fp32, "conv", "yes"),
        ("aten::_cudnn_rnn", fp32, "gemm", "yes"),  # Follows cuDNN's setting, not that of products.
        ("aten::mm", bf16, "gemm", "yes"),
        ("aten::mm", fp32, "gemm", "no"),
        (None, None, "attention", "yes"),
    ]
    kernels = pd.DataFrame(rows, columns=["operator", "input_types", "category", "tensor_cores"])
    assert tf32_categories(kernels, "nvidia") == {"conv"}
    kernels.loc[3, "tensor_cores"] = "yes"
    assert tf32_categories(kernels, "nvidia") == {"conv", "gemm"}
    assert tf32_categories(kernels, "amd") == set()  # AMD's matrix cores multiply FP32 itself.


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*)", "fp32"),
        ("volta_sgemm_128x64_nt", "fp32"),
        ("volta_dgemm_128x64_nt", "fp64"),
        ("cudnn_infer_conv_plain_kernel(int)", "fell_back"),
    ],
)
def test_kernel_name_gives_the_dtype_if_none_was_recorded(kernel, code):
    found = why_not_tensor_cores("aten::convolution", None, None, KernelClass("conv", "no", "named so"), V100, kernel=kernel)
    assert found is not None
    assert found.code == code


@pytest.mark.parametrize(
    ("kernel", "op", "types"),
    [
        ("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "aten::mm", BF16),  # This kernel does use tensor cores.
        ("matmul_kernel", None, None),  # unknown
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)", "aten::fill_", ["float"]),
    ],
)
def test_work_that_cannot_use_tensor_cores_has_no_reason(kernel, op, types):
    assert why_not_tensor_cores(op, types, SQUARE, classify(kernel, "kernel", op, types), H200) is None
