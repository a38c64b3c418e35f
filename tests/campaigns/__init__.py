"""Campaigns: random misfortunes, many times over. Each module is a program (runner.py says how it is called).

lifetime     what is dropped is freed at once, and nothing else is
"""
