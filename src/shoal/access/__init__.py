"""Access control: rules and the decisions that follow from them. Pure: nothing here does I/O."""
