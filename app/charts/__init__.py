"""Figures and small pictures from tables; no streamlit, no duckdb."""
