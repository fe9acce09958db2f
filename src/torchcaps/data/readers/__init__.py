"""Readers of file formats. A damaged or hostile file is a DataError with its path; memory and time stay bounded."""
