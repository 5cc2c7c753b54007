"""One function a measure: a stage in, named numbers out."""
