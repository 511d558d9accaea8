"""Claims and answers as one page, tables and figures."""
