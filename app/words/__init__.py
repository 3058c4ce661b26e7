"""Sentences that carry numbers: the same words on the page, in reports and in the terminal."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "advice": ("beside_others", "brings", "diff", "is_advice", "numbered", "of_the_loss", "plan_lines", "plan_title"),
        "headline": (
            "CUT_OFF_EARLY",
            "action",
            "below",
            "best_ms",
            "first_change",
            "forecast",
            "headline",
            "is_cut_off",
            "tab_title",
        ),
        "promise": ("sureness",),
        "run": ("first_line", "first_seen", "lost_to", "step_time"),
        "savings": ("Amount", "between_predicted"),
    },
)
