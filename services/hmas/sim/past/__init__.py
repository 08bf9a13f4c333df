"""Rehearsals: what a pool lived through lately, replayed under another decision."""
