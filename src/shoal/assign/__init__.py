"""Which member of a group reads which partition. Pure: subscriptions in, assignment out."""
