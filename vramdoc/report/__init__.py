"""Report to terminal, Markdown, JSON, HTML and pictures. Renderers are pure and late."""
