"""The results of the lab for readers: one page of HTML, tables of Markdown, and timelines as pictures."""
