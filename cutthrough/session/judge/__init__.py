"""May this request pass: who asks, the rules, the hook, the limits at accept."""
