"""Rewards for trainers: the reward protocol, its queue and service, dialects, and the extension point for trainers."""
