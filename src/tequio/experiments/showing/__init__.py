"""How results show themselves: in a terminal, in a notebook, as files of pictures, tables and pages."""
