"""What a table holds before anything is learned from it: kinds of columns, gaps, leaks, parties, and what to do about
each. The findings are plain data; nothing here prints."""
