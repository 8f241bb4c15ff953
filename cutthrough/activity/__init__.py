"""The operator's activity tracker: calls for what connections and exchanges do."""
