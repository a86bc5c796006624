//! Nothing: this crate exists for its tests. It must stay empty, so that nobody can depend on it.
