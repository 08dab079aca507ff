"""From a seed to a scenario: who does what, with which clock, lock service and weather."""
