"""Steps, expressions and the graph they make: immutable, validated, drawn; no Spark."""
