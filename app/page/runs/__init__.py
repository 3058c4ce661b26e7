"""What is done with runs on the pages: listed, edited, proposed, given telemetry and a clock, chosen for a comparison."""
