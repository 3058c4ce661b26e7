"""What costs time and what to do: rules, what they ask of a recording, and the findings they build."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "about_kernel": ("about_kernel", "about_modules", "about_operator"),
        "checking": ("check", "check_host"),
        "checklist": (
            "Checked",
            "Status",
            "checklist",
        ),
        "phases": ("PHASE_ORDER", "work_by_phase"),
        "plan": ("needed_before", "plan_of"),
        "rule": ("RuleContext",),
        "source_lines": (
            "FRAME",
            "as_known",
            "spoken",
            "is_user_line",
            "user_lines",
            "user_stack",
        ),
    },
)
