"""What a model is asked to do: loading, chat, prefill, training, serving. Runs inside the recorded process (torch)."""
