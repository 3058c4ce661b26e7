"""Mutation testing of the arithmetic behind every figure."""
