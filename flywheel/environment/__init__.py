"""Where a policy is tried and scored: policies, domains, sandbox, executor, rollouts."""
