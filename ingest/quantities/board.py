"""Quantities of a board from NVML and its tools: utilization, memory, power, temperatures, clocks.

The numbers in comments after DCGM's names are DCGM's field ids. If a source has several names of one quantity, the first name that
a file contains is used.
"""

from sawtooth.ingest.quantities.quantity import (
    ENERGY,
    MASK,
    MEMORY,
    MEMORY_CLOCK,
    MHZ,
    MIB,
    PERCENT,
    POWER,
    RATIO,
    SM_CLOCK,
    TEMPERATURE,
    Quantity,
)  # fmt: skip

BOARD: tuple[Quantity, ...] = (
    Quantity(
        column="util_pct", unit="percent", label="GPU utilization (NVML)", about="Share of the window in which a kernel ran, percent (NVML utilization.gpu)", range=PERCENT,
        names={
            "nvml_jsonl": {"gpu_util": 1},
            "nvidia_smi": {"utilization.gpu": 1},
            "nvidia_smi_dmon": {"sm": 1},
            "dcgmi": {"GPUTL": 1},  # 203
            "dcgm_exporter": {"DCGM_FI_DEV_GPU_UTIL": 1, "DCGM_FI_DEV_GPU_UTIL_RATIO": RATIO},
            "nvitop": {"gpu_utilization": 1},
            "sawtooth_exporter": {"sawtooth_gpu_utilization_ratio": RATIO},
            "wandb": {"gpu": 1},
            "mlflow": {"utilization_percentage": 1},
            "table": {"utilization_gpu": 1, "gpu_utilization": 1, "gpu_util": 1, "gpu_utilisation": 1, "utilization": 1, "utilisation": 1, "util": 1, "gpu_usage": 1, "gpu_use": 1, "gpu_load": 1, "usage": 1, "load": 1, "gpu_percent": 1, "gpu_busy": 1, "gfx_activity": 1, "gfx": 1, "util_gpu": 1},
            "gpustat": {"utilization.gpu": 1},
        },
        panel="utilization", mean=True,
    ),
    Quantity(
        column="mem_busy_pct", unit="percent", label="memory busy", about="Share of the window in which memory was read or written, percent", range=PERCENT,
        names={
            "nvml_jsonl": {"mem_util": 1},
            "nvidia_smi": {"utilization.memory": 1},
            "nvidia_smi_dmon": {"mem": 1},
            "dcgmi": {"MCUTL": 1},  # 204
            "dcgm_exporter": {"DCGM_FI_DEV_MEM_COPY_UTIL": 1, "DCGM_FI_DEV_MEMORY_UTIL_RATIO": RATIO},
            "nvitop": {"gpu_memory_utilization": 1},
            "sawtooth_exporter": {"sawtooth_gpu_memory_busy_ratio": RATIO},
            "wandb": {"memory": 1},
            "table": {"utilization_memory": 1, "memory_utilization": 1, "mem_utilization": 1, "memory_util": 1, "mem_util": 1, "memory_controller_load": 1, "umc_activity": 1, "gpu_memory_utilization": 1, "gpu_memory_bandwidth_utilization": 1, "mem": 1},
        },
        mean=True,
    ),
    Quantity(
        column="mem_used_bytes", unit="bytes", label="memory in use", about="Device memory in use, bytes", range=MEMORY,
        names={
            "nvml_jsonl": {"mem_used": 1},
            "nvidia_smi": {"memory.used": MIB},
            "nvidia_smi_dmon": {"fb": MIB},
            "dcgmi": {"FBUSD": MIB},  # 252
            "dcgm_exporter": {"DCGM_FI_DEV_FB_USED": MIB, "DCGM_FI_DEV_FB_USED_BYTES": 1},
            "nvitop": {"gpu_memory_used": MIB},
            "sawtooth_exporter": {"sawtooth_gpu_memory_used_bytes": 1},
            "wandb": {"memoryAllocatedBytes": 1},
            "mlflow": {"memory_usage_megabytes": 1e6},
            "table": {"memory_used": MIB, "mem_used": MIB, "used_memory": MIB, "gpu_memory_used": MIB, "gpu_mem_used": MIB, "vram_used": MIB, "used_vram": MIB, "fb_used": MIB, "vram_total_used_memory": MIB, "memory_usage": MIB},
            "gpustat": {"memory.used": MIB},
        },
        panel="memory", is_integer=True,
    ),
    Quantity(
        column="mem_total_bytes", unit="bytes", label="memory", about="Device memory, bytes", range=MEMORY,
        names={
            "nvml_jsonl": {"mem_total": 1},
            "nvidia_smi": {"memory.total": MIB},
            "dcgmi": {"FBTTL": MIB},  # 250
            "dcgm_exporter": {"DCGM_FI_DEV_FB_TOTAL": MIB, "DCGM_FI_DEV_FB_CAPACITY_BYTES": 1},
            "nvitop": {"gpu_memory_total": MIB},
            "table": {"memory_total": MIB, "mem_total": MIB, "total_memory": MIB, "gpu_memory_total": MIB, "vram_total": MIB, "total_vram": MIB, "vram_total_memory": MIB, "fb_total": MIB},
            "gpustat": {"memory.total": MIB},
        },
        is_integer=True,
    ),
    Quantity(
        column="power_w", unit="W", label="power", about="Power draw, watts", range=POWER,
        names={
            "nvml_jsonl": {"power_w": 1},
            "nvidia_smi": {"power.draw.instant": 1, "power.draw": 1, "power.draw.average": 1},
            "nvidia_smi_dmon": {"pwr": 1},
            "dcgmi": {"POWER": 1},  # 155
            "dcgm_exporter": {"DCGM_FI_DEV_POWER_USAGE": 1, "DCGM_FI_DEV_BOARD_POWER_WATTS": 1},
            "nvitop": {"gpu_power_usage": 1},
            "sawtooth_exporter": {"sawtooth_gpu_power_watts": 1},
            "wandb": {"powerWatts": 1},
            "mlflow": {"power_usage_watts": 1},
            "cuspy": {"Power (W)": 1},
            "table": {"power_draw_instant": 1, "power_usage_instant": 1, "power_draw": 1, "power": 1, "gpu_power": 1, "power_usage": 1, "gpu_power_draw": 1, "board_power": 1, "board_power_draw": 1, "socket_power": 1, "average_socket_power": 1, "current_socket_power": 1, "average_graphics_package_power": 1, "current_socket_graphics_package_power": 1, "power_draw_average": 1},
            "gpustat": {"power.draw": 1},
        },
        panel="power", mean=True,
    ),
    Quantity(
        column="energy_j", unit="J", label="energy", about="Energy since the driver was loaded, joules", range=ENERGY,
        names={
            "nvml_jsonl": {"energy_j": 1},
            "dcgmi": {"TOTEC": 1e-3},  # 156, millijoules
            "dcgm_exporter": {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1e-3, "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": 1},
            "sawtooth_exporter": {"sawtooth_gpu_energy_joules_total": 1},
            "table": {"energy": 1, "total_energy": 1, "total_energy_consumption": 1, "energy_consumption": 1, "gpu_energy_consumed": 1},
        },
    ),
    Quantity(
        column="temp_c", unit="°C", label="temperature", about="GPU temperature, °C", range=TEMPERATURE,
        names={
            "nvml_jsonl": {"temp_c": 1},
            "nvidia_smi": {"temperature.gpu": 1},
            "nvidia_smi_dmon": {"gtemp": 1},
            "dcgmi": {"TMPTR": 1},  # 150
            "dcgm_exporter": {"DCGM_FI_DEV_GPU_TEMP": 1, "DCGM_FI_DEV_GPU_TEMP_CELSIUS": 1},
            "nvitop": {"gpu_temperature": 1},
            "sawtooth_exporter": {"sawtooth_gpu_temperature_celsius": 1},
            "wandb": {"temp": 1},
            "cuspy": {"Temperature (C)": 1},
            "table": {"temperature_gpu": 1, "temperature": 1, "temp": 1, "gpu_temp": 1, "gpu_temperature": 1, "gpu_core_temperature": 1, "hotspot": 1, "hotspot_temperature": 1, "temperature_hotspot": 1, "temperature_sensor_junction": 1, "edge": 1, "edge_temperature": 1, "temperature_sensor_edge": 1},
            "gpustat": {"temperature.gpu": 1},
        },
        panel="temperature", mean=True,
    ),
    Quantity(
        column="mem_temp_c", unit="°C", label="memory temperature", about="Memory temperature, °C", range=TEMPERATURE,
        names={
            "nvml_jsonl": {"mem_temp_c": 1},
            "nvidia_smi": {"temperature.memory": 1},
            "nvidia_smi_dmon": {"mtemp": 1},
            "dcgmi": {"MMTMP": 1},  # 140
            "dcgm_exporter": {"DCGM_FI_DEV_MEMORY_TEMP": 1, "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": 1},
            "sawtooth_exporter": {"sawtooth_gpu_memory_temperature_celsius": 1},
            "table": {"temperature_memory": 1, "memory_temperature": 1, "mem_temp": 1, "gpu_memory_temperature": 1, "temperature_sensor_memory": 1, "temperature_mem": 1},
        },
    ),
    Quantity(
        column="clock_sm_mhz", unit="MHz", label="SM clock", about="SM clock, MHz", range=SM_CLOCK,
        names={
            "nvml_jsonl": {"sm_mhz": 1},
            "nvidia_smi": {"clocks.current.sm": 1, "clocks.sm": 1},
            "nvidia_smi_dmon": {"pclk": 1},
            "dcgmi": {"SMCLK": 1},  # 100
            "dcgm_exporter": {"DCGM_FI_DEV_SM_CLOCK": 1, "DCGM_FI_DEV_SM_CLOCK_HERTZ": MHZ},
            "nvitop": {"gpu_clock_sm": 1},
            "sawtooth_exporter": {"sawtooth_gpu_sm_clock_hertz": MHZ},
            "wandb": {"smClock": 1},
            "nsight_systems": {"GPC Clock Frequency": 1},
            "cuspy": {"SM Clock (MHz)": 1},
            "table": {"clocks_current_sm": 1, "clocks_sm": 1, "sm_clock": 1, "clock_sm": 1, "gpu_clock": 1, "core_clock": 1, "gpu_clock_sm": 1, "graphics_clock": 1, "clocks_current_graphics": 1, "clocks_gr": 1, "gfx_clk": 1, "gfx_clock": 1, "gfx_0_clk": 1, "sclk": 1, "sclk_clock_speed": 1, "gpu_frequency": 1, "sm_clock_mhz": 1},
        },
        panel="clock", mean=True,
    ),
    Quantity(
        column="clock_mem_mhz", unit="MHz", label="memory clock", about="Memory clock, MHz", range=MEMORY_CLOCK,
        names={
            "nvml_jsonl": {"mem_mhz": 1},
            "nvidia_smi": {"clocks.current.memory": 1, "clocks.mem": 1},
            "nvidia_smi_dmon": {"mclk": 1},
            "dcgmi": {"MMCLK": 1},  # 101
            "dcgm_exporter": {"DCGM_FI_DEV_MEM_CLOCK": 1, "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ": MHZ},
            "nvitop": {"gpu_clock_memory": 1},
            "sawtooth_exporter": {"sawtooth_gpu_memory_clock_hertz": MHZ},
            "wandb": {"memoryClock": 1},
            "cuspy": {"Memory Clock (MHz)": 1},
            "table": {"clocks_current_memory": 1, "clocks_mem": 1, "memory_clock": 1, "mem_clock": 1, "clock_mem": 1, "mem_clk": 1, "mem_0_clk": 1, "mclk": 1, "mclk_clock_speed": 1, "gpu_memory_frequency": 1},
        },
        mean=True,
    ),
    Quantity(
        column="clock_event_mask", unit="bits", label="clocks event reasons", about="NVML clocks event reasons, bit mask", range=MASK,
        names={
            "nvml_jsonl": {"throttle": 1},
            "nvidia_smi": {"clocks_event_reasons.active": 1, "clocks_throttle_reasons.active": 1},
            "dcgmi": {"DVCCTR": 1},  # 112
            "dcgm_exporter": {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 1, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 1},
            "sawtooth_exporter": {"sawtooth_gpu_clock_event_reasons": 1},
            "table": {"clocks_event_reasons_active": 1, "clocks_throttle_reasons_active": 1, "throttle_reasons": 1, "clock_event_reasons": 1, "current_clock_throttle_reasons": 1, "clocks_event_reasons": 1},
        },
        is_integer=True,
    ),
)  # fmt: skip
