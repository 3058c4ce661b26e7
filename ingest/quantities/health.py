"""Quantities for a diagnosis of a GPU: limits, PCIe link, errors and processes."""

from sawtooth.ingest.quantities.quantity import (
    COUNT,
    MHZ,
    PCIE_GENERATION,
    PCIE_LANES,
    PERCENT,
    POWER,
    SM_CLOCK,
    XID,
    Quantity,
)

HEALTH: tuple[Quantity, ...] = (
    Quantity(
        column="power_limit_w", unit="W", label="power limit", about="Current power limit, watts", range=POWER,
        names={
            "nvml_jsonl": {"power_limit_w": 1},
            "nvidia_smi": {"enforced.power.limit": 1, "power.limit": 1},
            "dcgm_exporter": {"DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 1, "DCGM_FI_DEV_POWER_MGMT_LIMIT": 1},
            "gpustat": {"enforced.power.limit": 1},
            "table": {"enforced_power_limit": 1, "power_limit": 1, "max_power_limit": 1},
            "sawtooth_exporter": {"sawtooth_gpu_power_limit_watts": 1},
        },
    ),
    Quantity(
        column="clock_sm_max_mhz", unit="MHz", label="highest SM clock", about="Highest SM clock of the GPU, MHz", range=SM_CLOCK,
        names={
            "nvml_jsonl": {"sm_max_mhz": 1},
            "nvidia_smi": {"clocks.max.sm": 1, "clocks.max.graphics": 1},
            "table": {"clocks_max_sm": 1, "gfx_0_max_clk": 1},
            "sawtooth_exporter": {"sawtooth_gpu_sm_clock_max_hertz": MHZ},
        },
    ),
    Quantity(
        column="thermal_violation_pct", unit="percent", label="limited by heat", about="Share of time in which heat limited the clocks, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"thermal_violation_pct": 1},
            "nvidia_smi_dmon": {"tviol": 100},  # 0 or 1
            "table": {"tviol": 1, "socket_thermal_violation_activity": 1, "thermal_violation": 1},
        },
    ),
    Quantity(
        column="power_violation_pct", unit="percent", label="limited by power", about="Share of time in which the power limit reduced the clocks, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"power_violation_pct": 1},
            "nvidia_smi_dmon": {"pviol": 1},
            "table": {"pviol": 1, "ppt_violation_activity": 1, "power_violation": 1},
        },
    ),
    Quantity(
        column="pcie_gen", unit="generation", label="PCIe generation", about="Current PCIe generation of the link", range=PCIE_GENERATION,
        names={
            "nvml_jsonl": {"pcie_gen": 1},
            "nvidia_smi": {"pcie.link.gen.current": 1, "pcie.link.gen.gpucurrent": 1},
            "dcgm_exporter": {"DCGM_FI_DEV_PCIE_LINK_GEN": 1},
            "table": {"pcie_link_gen_current": 1, "pcie_gen": 1, "pcie_link_gen": 1},
            "sawtooth_exporter": {"sawtooth_gpu_pcie_link_generation": 1},
        },
    ),
    Quantity(
        column="pcie_max_gen", unit="generation", label="highest PCIe generation", about="Highest PCIe generation that GPU and slot allow", range=PCIE_GENERATION,
        names={
            "nvml_jsonl": {"pcie_max_gen": 1},
            "nvidia_smi": {"pcie.link.gen.max": 1, "pcie.link.gen.gpumax": 1},
            "dcgm_exporter": {"DCGM_FI_DEV_PCIE_MAX_LINK_GEN": 1},
            "table": {"pcie_link_gen_max": 1, "pcie_max_gen": 1},
            "sawtooth_exporter": {"sawtooth_gpu_pcie_link_max_generation": 1},
        },
    ),
    Quantity(
        column="pcie_width", unit="lanes", label="PCIe lanes", about="Current number of PCIe lanes of the link", range=PCIE_LANES,
        names={
            "nvml_jsonl": {"pcie_width": 1},
            "nvidia_smi": {"pcie.link.width.current": 1},
            "dcgm_exporter": {"DCGM_FI_DEV_PCIE_LINK_WIDTH": 1},
            "table": {"pcie_link_width_current": 1, "pcie_width": 1, "pcie_link_width": 1},
            "sawtooth_exporter": {"sawtooth_gpu_pcie_link_lanes": 1},
        },
    ),
    Quantity(
        column="pcie_max_width", unit="lanes", label="most PCIe lanes", about="Largest number of PCIe lanes that GPU and slot allow", range=PCIE_LANES,
        names={
            "nvml_jsonl": {"pcie_max_width": 1},
            "nvidia_smi": {"pcie.link.width.max": 1},
            "dcgm_exporter": {"DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 1},
            "table": {"pcie_link_width_max": 1, "pcie_max_width": 1},
            "sawtooth_exporter": {"sawtooth_gpu_pcie_link_max_lanes": 1},
        },
    ),
    Quantity(
        column="ecc_corrected_count", unit="count", label="corrected memory errors", about="Corrected ECC errors since the driver was loaded", range=COUNT,
        names={
            "nvml_jsonl": {"ecc_corrected": 1},
            "nvidia_smi": {"ecc.errors.corrected.volatile.total": 1, "ecc.errors.corrected.aggregate.total": 1},
            "nvidia_smi_dmon": {"sbecc": 1},
            "dcgm_exporter": {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 1},
            "table": {"ecc_errors_corrected_volatile_total": 1, "total_correctable_count": 1, "single_bit_ecc": 1},
            "sawtooth_exporter": {"sawtooth_gpu_ecc_corrected_errors_total": 1},
        },
    ),
    Quantity(
        column="ecc_uncorrected_count", unit="count", label="uncorrected memory errors", about="Uncorrected ECC errors since the driver was loaded", range=COUNT,
        names={
            "nvml_jsonl": {"ecc_uncorrected": 1},
            "nvidia_smi": {"ecc.errors.uncorrected.volatile.total": 1, "ecc.errors.uncorrected.aggregate.total": 1},
            "nvidia_smi_dmon": {"dbecc": 1},
            "dcgm_exporter": {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 1},
            "table": {"ecc_errors_uncorrected_volatile_total": 1, "total_uncorrectable_count": 1, "double_bit_ecc": 1},
            "sawtooth_exporter": {"sawtooth_gpu_ecc_uncorrected_errors_total": 1},
        },
    ),
    Quantity(
        column="xid_last", unit="number", label="last Xid", about="Number of the last Xid error that the driver reported; 0 without one", range=XID,
        names={
            "nvml_jsonl": {"xid": 1},
            "dcgmi": {"XIDER": 1},  # 230
            "dcgm_exporter": {"DCGM_FI_DEV_XID_ERRORS": 1},
            "table": {"xid": 1, "xid_errors": 1},
        },
    ),
    Quantity(
        column="process_count", unit="count", label="processes on the GPU", about="Processes that use the GPU", range=COUNT,
        names={
            "nvml_jsonl": {"processes": 1},
            "table": {"processes": 1, "process_count": 1, "num_processes": 1},
        },
    ),
)  # fmt: skip
