"""Declared cuts: the user says where a file is cut, and the parts are read as ranges of that file."""
