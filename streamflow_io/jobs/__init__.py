"""The life of one job: its attempts, what it delivers when, what it reads, and how it ends."""
