"""One analysed run: its data model, its verdict, what its ranks say together, and the report whose keys are stable."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "at_best": (
            "UNSEEN",
            "at_best",
            "unseen_ms",
        ),
        "audit": (
            "AuditRow",
            "audit",
        ),
        "compile_log": ("CompileLog",),
        "model": (
            "CodeChange",
            "Communication",
            "Confidence",
            "Explains",
            "Finding",
            "LedgerRow",
            "NO_GAIN",
            "NotChecked",
            "PlanStep",
            "RankResult",
            "RankWaits",
            "RunResult",
            "Severity",
            "Straggler",
            "StragglerKind",
        ),
        "ranks": (
            "collective_table",
            "side_by_side",
            "split_communication",
        ),
        "host": (
            "HostWork",
            "host_work",
        ),
        "job": ("as_one_job",),
        "job_step": (
            "at_job_step",
            "leading",
        ),
        "lateness": (
            "who",
            "why",
        ),
        "contract": (
            "REPORT_VERSION",
            "FindingPart",
            "ReportPart",
            "report_schema",
        ),
        "report": (
            "finding_json",
            "report_json",
        ),
        "settings": ("settings_of",),
        "view": (
            "causes_of",
            "open_rank",
        ),
        "verdict": (
            "Column",
            "Judgement",
            "Part",
            "busy_ms",
            "busy_share_of_best",
            "columns_of",
            "explains",
            "judge",
            "parts_of",
            "uses_estimate",
        ),
    },
)
