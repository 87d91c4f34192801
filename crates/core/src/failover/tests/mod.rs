//! A table a rule.
