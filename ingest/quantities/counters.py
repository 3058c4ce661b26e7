"""Quantities from hardware counters of the SMs and the buses (GPM, and DCGM's profiling fields).

The numbers in comments after DCGM's names are DCGM's field ids.
"""

from sawtooth.ingest.quantities.quantity import MIB, PERCENT, RATIO, TRAFFIC, Quantity

COUNTERS: tuple[Quantity, ...] = (
    Quantity(
        column="gr_active_pct", unit="percent", label="GPU activity", about="Graphics engine active, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_graphics": 1},
            "nvidia_smi_dmon": {"gract": 1},
            "dcgmi": {"GRACT": RATIO},  # 1001
            "dcgm_exporter": {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": RATIO, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_graphics_active_ratio": RATIO},
            "wandb": {"grEngineActive": RATIO},
            "nsight_systems": {"GR Active": 1},
        },
        panel="activity", mean=True, gpm_id=1,
    ),
    Quantity(
        column="sm_active_pct", unit="percent", label="SM activity", about="SM active, percent averaged over SMs", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_sm": 1},
            "nvidia_smi_dmon": {"smutil": 1},
            "dcgmi": {"SMACT": RATIO},  # 1002
            "dcgm_exporter": {"DCGM_FI_PROF_SM_ACTIVE": RATIO, "DCGM_FI_PROF_SM_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_sm_active_ratio": RATIO},
            "wandb": {"smActive": RATIO},
            "nsight_systems": {"SMs Active": 1, "SM Active": 1},
            "cuspy": {"SM Active (%)": 1},
            "table": {"sm_active": 1, "sm_activity": 1, "smact": 1, "sm_util": 1},
        },
        panel="activity", mean=True, gpm_id=2,
    ),
    Quantity(
        column="sm_occupancy_pct", unit="percent", label="SM occupancy", about="Resident warps, percent of the possible number", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_occupancy": 1},
            "nvidia_smi_dmon": {"smocc": 1},
            "dcgmi": {"SMOCC": RATIO},  # 1003
            "dcgm_exporter": {"DCGM_FI_PROF_SM_OCCUPANCY": RATIO, "DCGM_FI_PROF_SM_OCCUPANCY_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_sm_occupancy_ratio": RATIO},
            "wandb": {"smOccupancy": RATIO},
            "nsight_systems": {"Compute Warps in Flight": 1, "Compute Warps In Flight": 1},
            "table": {"sm_occupancy": 1},
        },
        mean=True, gpm_id=3,
    ),
    Quantity(
        column="tensor_active_pct", unit="percent", label="tensor pipe", about="Any tensor pipe active, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_tensor_any": 1},
            "nvidia_smi_dmon": {"mmaact": 1},
            "dcgmi": {"TENSO": RATIO},  # 1004
            "dcgm_exporter": {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": RATIO, "DCGM_FI_PROF_TENSOR_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_tensor_active_ratio": RATIO},
            "wandb": {"pipeTensorActive": RATIO},
            "nsight_systems": {"Tensor Active": 1},
            "table": {"tensor_active": 1, "tensor_activity": 1, "tensor_core_active": 1},
        },
        panel="activity", mean=True, gpm_id=5,
    ),
    Quantity(
        column="tensor_hmma_pct", unit="percent", label="half-precision tensor pipe", about="Half-precision tensor pipe active, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_tensor_hmma": 1},
            "nvidia_smi_dmon": {"hmmat": 1, "hmmaact": 1},
            "dcgmi": {"THMMA": RATIO},  # 1014
            "dcgm_exporter": {"DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE": RATIO, "DCGM_FI_PROF_HMMA_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_tensor_hmma_active_ratio": RATIO},
            "wandb": {"pipeTensorHmmaActive": RATIO},
        },
        mean=True, gpm_id=7,
    ),
    Quantity(
        column="tensor_imma_pct", unit="percent", label="integer tensor pipe", about="Integer tensor pipe active, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_tensor_imma": 1},
            "nvidia_smi_dmon": {"immat": 1, "immaact": 1},
            "dcgmi": {"TIMMA": RATIO},  # 1013
            "dcgm_exporter": {"DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE": RATIO, "DCGM_FI_PROF_IMMA_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_tensor_imma_active_ratio": RATIO},
        },
        gpm_id=9,
    ),
    Quantity(
        column="tensor_dfma_pct", unit="percent", label="double-precision tensor pipe", about="Double-precision tensor pipe active, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_tensor_dfma": 1},
            "nvidia_smi_dmon": {"dfmat": 1, "dfmaact": 1},
            "dcgmi": {"TDFMA": RATIO},  # 1015
            "dcgm_exporter": {"DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE": RATIO, "DCGM_FI_PROF_DFMA_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_tensor_dfma_active_ratio": RATIO},
        },
        gpm_id=6,
    ),
    Quantity(
        column="integer_pct", unit="percent", label="integer pipe", about="Integer pipe active, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_integer": 1},
            "nvidia_smi_dmon": {"intact": 1},
            "dcgm_exporter": {"DCGM_FI_PROF_PIPE_INT_ACTIVE": RATIO, "DCGM_FI_PROF_INT_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_integer_active_ratio": RATIO},
        },
        gpm_id=4,
    ),
    Quantity(
        column="dram_active_pct", unit="percent", label="memory bandwidth", about="Memory bandwidth in use, percent of peak", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_dram_bw": 1},
            "nvidia_smi_dmon": {"dram": 1},
            "dcgmi": {"DRAMA": RATIO},  # 1005
            "dcgm_exporter": {"DCGM_FI_PROF_DRAM_ACTIVE": RATIO, "DCGM_FI_PROF_DRAM_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_dram_active_ratio": RATIO},
            "wandb": {"dramActive": RATIO},
            # Nsight Systems has reads and writes as two metrics, which are summed. GPUs without HBM have VRAM instead of DRAM.
            "nsight_systems": {
                f"{memory} {way} {what}": 1
                for memory in ("DRAM", "VRAM") for way in ("Read", "Write") for what in ("Bandwidth", "Throughput")
            },
            "cuspy": {"DRAM BW (%)": 1},
            "table": {"dram_active": 1, "dram_activity": 1, "memory_bandwidth_utilization": 1},
        },
        panel="activity", mean=True, gpm_id=10,
    ),
    Quantity(
        column="fp64_pct", unit="percent", label="FP64 pipe", about="FP64 pipe active, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_fp64": 1},
            "nvidia_smi_dmon": {"fp64": 1},
            "dcgmi": {"FP64A": RATIO},  # 1006
            "dcgm_exporter": {"DCGM_FI_PROF_PIPE_FP64_ACTIVE": RATIO, "DCGM_FI_PROF_FP64_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_fp64_active_ratio": RATIO},
            "wandb": {"pipeFp64Active": RATIO},
        },
        gpm_id=11,
    ),
    Quantity(
        column="fp32_pct", unit="percent", label="FP32 pipe", about="FP32 pipe active, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_fp32": 1},
            "nvidia_smi_dmon": {"fp32": 1},
            "dcgmi": {"FP32A": RATIO},  # 1007
            "dcgm_exporter": {"DCGM_FI_PROF_PIPE_FP32_ACTIVE": RATIO, "DCGM_FI_PROF_FP32_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_fp32_active_ratio": RATIO},
            "wandb": {"pipeFp32Active": RATIO},
        },
        mean=True, gpm_id=12,
    ),
    Quantity(
        column="fp16_pct", unit="percent", label="FP16 pipe", about="FP16 pipe (not tensor) active, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"gpm_fp16": 1},
            "nvidia_smi_dmon": {"fp16": 1},
            "dcgmi": {"FP16A": RATIO},  # 1008
            "dcgm_exporter": {"DCGM_FI_PROF_PIPE_FP16_ACTIVE": RATIO, "DCGM_FI_PROF_FP16_UTIL_RATIO": RATIO},
            "sawtooth_exporter": {"sawtooth_gpu_fp16_active_ratio": RATIO},
            "wandb": {"pipeFp16Active": RATIO},
        },
        gpm_id=13,
    ),
    Quantity(
        column="pcie_tx_bps", unit="bytes/s", label="PCIe sent", about="PCIe sent, bytes per second", range=TRAFFIC,
        names={
            "nvml_jsonl": {"gpm_pcie_tx": MIB},
            "nvidia_smi_dmon": {"txpci": 1e6, "pcitx": MIB},
            "dcgmi": {"PCITX": 1},  # 1009
            "dcgm_exporter": {"DCGM_FI_PROF_PCIE_TX_BYTES": 1},
            "nvitop": {"gpu_pcie_tx_throughput": MIB},
            "sawtooth_exporter": {"sawtooth_gpu_pcie_sent_bytes_per_second": 1},
            "wandb": {"pcieTxBytes": 1},
            "table": {"pcie_tx": MIB},
        },
        mean=True, gpm_id=20, gpm_scale=MIB,
    ),
    Quantity(
        column="pcie_rx_bps", unit="bytes/s", label="PCIe received", about="PCIe received, bytes per second", range=TRAFFIC,
        names={
            "nvml_jsonl": {"gpm_pcie_rx": MIB},
            "nvidia_smi_dmon": {"rxpci": 1e6, "pcirx": MIB},
            "dcgmi": {"PCIRX": 1},  # 1010
            "dcgm_exporter": {"DCGM_FI_PROF_PCIE_RX_BYTES": 1},
            "nvitop": {"gpu_pcie_rx_throughput": MIB},
            "sawtooth_exporter": {"sawtooth_gpu_pcie_received_bytes_per_second": 1},
            "wandb": {"pcieRxBytes": 1},
            "table": {"pcie_rx": MIB},
        },
        mean=True, gpm_id=21, gpm_scale=MIB,
    ),
    Quantity(
        column="nvlink_tx_bps", unit="bytes/s", label="NVLink sent", about="NVLink sent, bytes per second", range=TRAFFIC,
        names={
            "nvml_jsonl": {"gpm_nvlink_tx": MIB},
            "nvidia_smi_dmon": {"nvltx": MIB},
            "dcgmi": {"NVLTX": 1},  # 1011
            "dcgm_exporter": {"DCGM_FI_PROF_NVLINK_TX_BYTES": 1},
            "nvitop": {"gpu_nvlink_total_tx_throughput": MIB},
            "sawtooth_exporter": {"sawtooth_gpu_nvlink_sent_bytes_per_second": 1},
            "wandb": {"nvlinkTxBytes": 1},
        },
        mean=True, gpm_id=61, gpm_scale=MIB,
    ),
    Quantity(
        column="nvlink_rx_bps", unit="bytes/s", label="NVLink received", about="NVLink received, bytes per second", range=TRAFFIC,
        names={
            "nvml_jsonl": {"gpm_nvlink_rx": MIB},
            "nvidia_smi_dmon": {"nvlrx": MIB},
            "dcgmi": {"NVLRX": 1},  # 1012
            "dcgm_exporter": {"DCGM_FI_PROF_NVLINK_RX_BYTES": 1},
            "nvitop": {"gpu_nvlink_total_rx_throughput": MIB},
            "sawtooth_exporter": {"sawtooth_gpu_nvlink_received_bytes_per_second": 1},
            "wandb": {"nvlinkRxBytes": 1},
        },
        mean=True, gpm_id=60, gpm_scale=MIB,
    ),
)  # fmt: skip
