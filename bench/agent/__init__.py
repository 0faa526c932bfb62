"""The node agent's budgets, beside the real system-agent."""
