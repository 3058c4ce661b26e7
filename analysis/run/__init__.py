"""One analysed run: its data model, its verdict, and the report whose keys are stable."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "at_best": (
            "at_best",
            "brought_to",
            "unseen_ms",
        ),
        "audit": (
            "AuditRow",
            "audit",
        ),
        "compile_log": ("CompileLog", "CompileReason"),
        "first_look": (
            "FirstLook",
            "first_look",
        ),
        "model": (
            "CodeChange",
            "Confidence",
            "Explains",
            "Finding",
            "LedgerRow",
            "NO_GAIN",
            "NotChecked",
            "PlanStep",
            "RankResult",
            "RunResult",
            "Severity",
            "may_gain_nothing",
        ),
        "host": (
            "HostWork",
            "host_work",
        ),
        "loading": (
            "host_parts",
            "pace",
        ),
        "job": (
            "Communication",
            "GroupUse",
            "Parallelism",
            "Pipeline",
            "RankWaits",
            "SEND_RECEIVE",
            "Side",
            "Split",
            "Straggler",
            "StragglerKind",
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
        "rank": ("RankTrace",),
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
