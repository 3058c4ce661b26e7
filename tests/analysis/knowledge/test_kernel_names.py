"""Tests of kernel categories and tensor-core use by kernel names, operators and dtypes."""

from __future__ import annotations

import re

import pytest

from sawtooth.analysis.knowledge.kernel_names import classify, first_match, operator_category, tables

BF16 = ["c10::BFloat16", "c10::BFloat16"]
FP32 = ["float", "float"]
ROWS = [(table, index) for table, rules in tables().items() for index in range(len(rules))]


@pytest.mark.parametrize(("table", "index"), ROWS)
def test_every_row_matches_its_own_example(table, index):
    rule = tables()[table][index]
    assert first_match(table, rule.example) is rule
    assert len(rule.source) >= 4


def test_tables_use_known_words():
    tensor = tables()["tensor_cores"]
    assert {rule.result for rule in tensor} == {"yes", "likely", "no"}
    assert all(len(rule.why) > 10 for rule in tensor)
    assert all(re.fullmatch("[a-z_]+", rule.result) for table in tables().values() for rule in table)


def test_examples_of_products_reach_their_tensor_core_row():
    # A tensor-core row is never used if the category table assigns its example to a category without products.
    for rule in tables()["tensor_cores"]:
        found = classify(rule.example, "kernel")
        assert found.tensor_cores == rule.result, (rule.example, found)


@pytest.mark.parametrize(
    ("kernel", "op", "types", "category", "use"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas", "aten::mm", FP32, "gemm", "no"),
        ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT", "aten::mm", BF16, "gemm", "yes"),
        ("nvjet_sm90_tst_128x256_64x4_2x1_v_ssched_bz_coopA_TNN", "aten::cudnn_convolution", BF16, "conv", "yes"),
        ("ampere_sgemm_128x64_tn", "aten::addmm", ["float"] * 3, "gemm", "no"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", None, None, "gemm", "yes"),
        ("ampere_fp16_s1688gemm_fp16_128x128_ldg8_f2f_stages_32x1_nn", None, None, "gemm", "yes"),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", None, None, "gemm", "yes"),
        ("volta_h884gemm_64x64_ldg8_nn", None, None, "gemm", "yes"),
        ("volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1", None, None, "conv", "yes"),
        ("turing_fp16_s1688cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", None, None, "conv", "yes"),
        ("volta_sgemm_fp16_128x64_nn", None, None, "gemm", "no"),
        ("ampere_scudnn_128x64_relu_medium_nn_v1", None, None, "conv", "no"),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(cutlass_80_simt_sgemm_128x128_8x4_nn_align1::Params)", None, None, "gemm", "no"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4::Params)", "aten::mm", FP32, "gemm", "yes"),
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<float const> >(x)", "aten::mm", FP32, "gemm", "no"),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2> > > >(Params)", None, None, "attention", "yes"),
        ("void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<64> > > >(Params)", None, None, "attention", "no"),
        ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm90<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int> > > >(Params)", "aten::_scaled_mm", ["c10::Float8_e4m3fn"] * 2, "gemm", "yes"),
        ("void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)> >(int)", "aten::addmm", FP32, "copy", "no"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)", "aten::gelu", BF16, "elementwise", "no"),
        ("_ZN6miopen22SubTensorOpWithScalar1dEv", None, None, "elementwise", "no"),
        ("matmul_kernel", None, None, "gemm", "unknown"),
        ("matmul_kernel", "mylib::mm", BF16, "gemm", "likely"),
        ("_fwd_kernel", None, None, "other", "unknown"),
        ("my_cuda_kernel(float*)", None, None, "other", "unknown"),
        ("my_cuda_kernel(float*)", "aten::add", FP32, "elementwise", "no"),
        ("my_cuda_kernel(float*)", "aten::mm", FP32, "gemm", "unknown"),
        ("my_cuda_kernel(float*)", "aten::mm", ["double", "double"], "gemm", "unknown"),
        ("my_cuda_kernel(float*)", "aten::mm", ["int", "int"], "gemm", "no"),
        ("triton_tem_fused_mm_0", "triton_tem_fused_mm_0", BF16, "gemm", "likely"),
        ("triton_tem_fused_mm_0", None, None, "gemm", "unknown"),
        ("triton_tem_fused_flex_attention_0", None, None, "attention", "unknown"),
        ("triton_red_fused__softmax_amax_1", None, None, "fused", "no"),
        ("triton_red_fused_mm_12", "aten::mm", BF16, "gemm", "likely"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "record_param_comms", None, "communication", "no"),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16", None, None, "communication", "no"),
        ("Memcpy HtoD (Pageable -> Device)", None, None, "memcpy", "no"),
        ("memcpy32_post", None, None, "memcpy", "no"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, cudnn::fusion::WorkloadImpl>(x)", "aten::_cudnn_attention_backward", BF16, "attention", "no"),
        ("void at::native::batch_norm_transform_input_channels_last_kernel<c10::BFloat16, float, float, 4>(x)", None, None, "norm", "no"),
        ("void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<x>(y)", None, None, "norm", "no"),
        ("_rms_norm_forward_kernel", None, None, "norm", "no"),
        ("liger_cross_entropy_kernel", None, None, "softmax", "no"),
        ("void transformer_engine::scaled_aligned_causal_masked_softmax_warp_forward<__nv_bfloat16, float, 12>(x)", None, None, "softmax", "no"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float, int>, float>(x)", None, None, "optimizer", "no"),
        ("kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>", None, None, "quantization", "no"),
        ("void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm>(x)", None, None, "gemm", "yes"),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_stride1", None, None, "conv", "no"),
        ("void vllm::moe::topkGatingSoftmax<8, 128, 4, 16>(x)", None, None, "moe", "no"),
        ("fused_moe_kernel", None, None, "gemm", "likely"),
        ("ampere_igemm_int8_128x128_ldg4_nn", None, None, "gemm", "no"),
        ("volta_fp16_sgemm_fp16_128x64_nn", None, None, "gemm", "no"),
        ("cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x128x16_1x1x1_3_tnn_align1_bias_f32_relu", None, None, "gemm", "no"),
        ("cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_bf16_bf16_256x192x256", None, None, "gemm", "yes"),
        ("void cutlass::Kernel2<vllm::enable_sm89_to_sm90<cutlass::gemm::kernel::DefaultGemmUniversal> >(x)", None, None, "gemm", "yes"),
        ("kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensorptrbf16", None, None, "attention", "yes"),
        ("kernel_cutlass_kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensorptrbf16", None, None, "norm", "no"),
        ("void vllm::merge_attn_states_kernel<__nv_bfloat16, 128>(x)", None, None, "attention", "no"),
        ("void marlin_moe_wna16::Marlin<__nv_bfloat16>(x)", None, None, "gemm", "yes"),
        ("void gptq_marlin_repack_kernel<4, 256, true>(x)", None, None, "quantization", "no"),
        ("_ZN7ck_tile6kentryILi256ELi1ENS_19FmhaBwdDQDKDVKernelINS_x", None, None, "attention", "yes"),
        ("_ZN7ck_tile6kentryILi64ELi2ENS_22FmhaBwdOGradDotOKernelI", None, None, "attention", "no"),
        ("_ZN5aiter24fmha_bwd_hd128_bf16_a32_psskE", None, None, "attention", "yes"),
        ("Cijk_BB_BiasS_HAS_SAV_PostGSU8_VW2", None, None, "gemm", "no"),
        ("Custom_Cijk_Alik_Bljk_HHS_BH_Bias_MT256x256x64_MI16x16x1_SN", None, None, "gemm", "yes"),
        ("gridwise_convolution_implicit_gemm_v4r4_xdlops_nchw_kcyx_nkhw", None, None, "conv", "yes"),
        ("paged_attention_ll4mi_QKV_mfma16_kernel", None, None, "attention", "yes"),
        ("_ragged_hstu_attn_fwd", None, None, "attention", "likely"),
        ("void pplx::a2a_dispatch_send_kernel<x>(y)", None, None, "communication", "no"),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(x)", None, None, "communication", "no"),
        ("void nhwcAddPaddingKernel<__nv_bfloat16>(int, cudnn::reduced_divisor)", "aten::cudnn_convolution", BF16, "layout", "no"),
        ("triton_tem_fused_flex_attention_backward_1", "triton_tem_fused_flex_attention_backward_1", BF16, "attention", "likely"),
        ("triton_poi_fused_convolution_backward_12", None, None, "fused", "no"),
    ],
)  # fmt: skip
def test_families(kernel, op, types, category, use):
    found = classify(kernel, "kernel", op, types, None, vendor="nvidia", compute_major=9)
    assert (found.category, found.tensor_cores) == (category, use), found.reason


@pytest.mark.parametrize(("kind", "category"), [("memcpy", "memcpy"), ("memset", "memset")])
def test_kind_of_the_profiler_decides_copies(kind, category):
    assert classify("whatever gemm", kind).category == category


def test_rocm_blit_kernels_are_copies():
    assert classify("__amd_rocclr_copyBuffer", "kernel", "aten::copy_").category == "memcpy"
    assert classify("__amd_rocclr_fillBufferAligned", "kernel").category == "memset"


def test_fp32_on_volta_uses_no_tensor_cores():
    assert classify("some_gemm", "kernel", "aten::mm", FP32, None, vendor="nvidia", compute_major=7).tensor_cores == "no"
    assert classify("some_gemm", "kernel", "aten::mm", FP32, None, vendor="nvidia", compute_major=8).tensor_cores == "unknown"
    assert (
        classify("some_gemm", "kernel", "aten::mm", ["c10::Half"] * 2, None, vendor="nvidia", compute_major=7).tensor_cores
        == "likely"
    )


def test_no_tensor_cores_before_volta():
    assert (
        classify("some_gemm", "kernel", "aten::mm", ["c10::Half"] * 2, None, vendor="nvidia", compute_major=6).tensor_cores
        == "no"
    )


def test_a_product_with_one_row_is_a_vector_product():
    found = classify(
        "unnamed_gemm_thing", "kernel", "aten::mm", BF16, [[1, 4096], [4096, 4096]], vendor="nvidia", compute_major=9
    )
    assert found.tensor_cores == "no"
    assert (
        classify(
            "unnamed_gemm_thing", "kernel", "aten::mm", BF16, [[8, 4096], [4096, 4096]], vendor="nvidia", compute_major=9
        ).tensor_cores
        == "likely"
    )


@pytest.mark.parametrize(
    "name", ["forward_conv_block", "ProfilerStep#3", "autograd::engine::evaluate_function: ConvolutionBackward0", "", None]
)
def test_annotations_are_not_operators(name):
    assert operator_category(name) is None


def test_hostile_names_end_quickly():
    # A megabyte of text that partly matches many rows. The matcher reads only a limited part of it.
    assert classify("cijk_" + "a" * 1_000_000, "kernel").category == "gemm"
