//! Which metrics tell a fast kernel from a slow one, by real profiles?
