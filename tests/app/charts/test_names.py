"""Tests of kernel names in tables and charts."""

import pytest

from sawtooth.app.charts.rankings import distinct_names, short_name


def test_cut_names_of_one_kernel_family_stay_distinct() -> None:
    # real names of one recording: family, tile and layout, in this order
    names = [
        f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_{tile}_tn_align2>"
        for tile in ("256x128_64x3", "128x256_64x3", "128x128_64x4")
    ]
    cut = [short_name(f"{name}({name}::Params)", 44) for name in names]
    assert len(set(cut)) == 3
    assert all(len(name) <= 44 and name.startswith("cutlass_80") and name.endswith("_tn_align2") for name in cut)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn", "ampere…s16816gemm…stages_64x3_tn"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_kernel0_0", "cudnn…sdpa…f16_knob_7_kernel0_0"),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_stage3_kernel", "sm80_xmma_gemm…stage3_kernel"),
        (
            "at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda>",
            "vector… · bfloat16_copy_kernel_cuda",
        ),
        (
            "at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast_of_many_tensors>",
            "gpu_kernel_impl…of_many_tensors",
        ),
    ],
)
def test_a_cut_kernel_name_keeps_its_operation(name: str, shown: str) -> None:
    assert short_name(name, 35) == shown


def test_a_short_name_is_not_cut() -> None:
    assert short_name("aten::mm", 44) == "aten::mm"


def test_a_name_is_cut_between_words() -> None:
    assert short_name("batch_norm_collect_statistics_channels_last_kernel", 40) == "batch_norm_collect…channels_last_kernel"
    functor = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"
    assert short_name(functor, 40) == "vectorized_elementwise · CUDAFunctor_add"
    assert short_name(functor, 34) == "vectorized… · CUDAFunctor_add"
    assert short_name("a" * 50, 35) == "a" * 17 + "…" + "a" * 17  # One word, so that letters are cut.


def test_kernels_with_equal_short_names_end_with_their_difference() -> None:
    fort = "cudnn_generated_fort_native_sdpa_sm90_flash_{}_wgmma_f16_knob_{}_64x128x64_4x1x1_cga1x1x1_kernel0_0"
    reduce = "void at::native::reduce_kernel<{}, 1, at::native::ReduceOp<float, at::native::{}<float, float>, unsigned int> >"
    names = [
        fort.format("fprop", 7), fort.format("bprop", 26), "aten::mm",
        reduce.format(128, "MeanOps"), reduce.format(128, "NormOps"), reduce.format(512, "MeanOps"),
    ]  # fmt: skip
    shown = distinct_names(names, 44)
    assert len(set(shown)) == 6 and all(len(name) <= 44 for name in shown)
    assert [name.rpartition(" · ")[2] for name in shown] == ["fprop", "bprop", "aten::mm", "128", "NormOps", "512"]


def test_the_functor_that_says_what_a_kernel_does_is_named() -> None:
    """Names of one recording: gpu_kernel_impl, BinaryFunctor and ReduceOp only pass arguments on."""
    element = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::{}> >(int)"
    names = [
        element.format("direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"),
        element.format("BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"),
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float> > > >",
    ]
    shown = ["elementwise_kernel · direct_copy_kernel_cuda", "elementwise_kernel · MulFunctor", "reduce_kernel · sum_functor"]
    assert [short_name(name, 44) for name in names] == shown


@pytest.mark.parametrize("length", [36, 40, 44])
def test_no_two_kernels_have_the_same_name(length: int) -> None:
    """Real names of one recording, which differ in their tiles."""
    xmma = "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_{}_warpgroupsize{}_g1_execute_{}_kernel__5x_cudnn"
    tiles = (("tilesize128x128x64", "1x1x1"), ("tilesize64x64x64", "1x1x1"), ("tilesize256x128x64", "2x1x1"))
    names = [xmma.format(*tile, end) for tile in tiles for end in ("segment_k_on", "split_k")]
    shown = distinct_names([*names, names[0].replace("wgrad", "fprop")], length)
    assert len(set(shown)) == 7 and all(len(name) <= length for name in shown)
    assert {"128x128x64" in name for name in shown[:2]} == {True}


def test_names_without_room_for_their_difference_are_numbered() -> None:
    names = [f"{'a' * 60}_{'b' * 30}{end}_{'c' * 60}" for end in ("x", "y")]
    assert len(set(distinct_names(names, 20))) == 2


def test_names_that_differ_only_in_symbols_stay_distinct() -> None:
    deep = "f<" * 3_000
    assert distinct_names([deep + "a", deep + "a ", "b" * 60, "b" * 60], 20)[2:] == ["b" * 10 + "…" + "b" * 9] * 2
