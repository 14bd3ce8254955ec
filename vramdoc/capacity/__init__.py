"""Which contexts times how many sessions fit: KV bytes, budgets, the capacity statement."""
