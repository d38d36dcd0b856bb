"""A small canvas: rectangles, lines and text, written as SVG or PNG. Pure: values in, bytes out."""
