"""What costs time and what to do: rules, what they ask of a recording, and the findings they build."""
