"""The member's side of consumer groups: what a client does to be in one."""
