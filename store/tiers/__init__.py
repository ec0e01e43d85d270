"""Tiers by medium."""
