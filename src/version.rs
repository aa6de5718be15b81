//! Which warpsmith is this?

/// Its version, and behind it the commit: builds with optimization name it, and those that `WARPSMITH_COMMIT` tells it.
pub const VERSION: &str = env!("WARPSMITH_VERSION");
