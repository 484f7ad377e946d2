"""Rewards for trainers: the reward protocol, its queue and service, dialects, and functions for each trainer."""
