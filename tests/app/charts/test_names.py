"""What kernels are called in tables and charts."""

from sawtooth.app.charts.rankings import short


def test_kernels_of_one_family_stay_apart_when_their_names_are_cut() -> None:
    # real names of one recording: family, tile and layout, in this order
    names = [
        f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_{tile}_tn_align2>"
        for tile in ("256x128_64x3", "128x256_64x3", "128x128_64x4")
    ]
    cut = [short(f"{name}({name}::Params)", 44) for name in names]
    assert len(set(cut)) == 3
    assert all(len(name) <= 44 and name.startswith("cutlass_80") and name.endswith("_tn_align2") for name in cut)


def test_a_short_name_stays_whole() -> None:
    assert short("aten::mm", 44) == "aten::mm"
