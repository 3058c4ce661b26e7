"""Figures and small pictures made from tables; they use neither streamlit nor duckdb."""
