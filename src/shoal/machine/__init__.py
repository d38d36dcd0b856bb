"""What every journaled machine is made of: decisions, timers, a clock of its own. Pure."""
