"""One file per screen: select, ask analysis, hand to charts and cards."""
