"""What would happen if: a recorded run as a small machine whose parts can be changed and run again."""
